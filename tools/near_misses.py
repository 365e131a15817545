"""Questions that a text nearly answers, for `make bench-quality`: made contracts, rules and minutes in SQuAD's form.

A text tells some facts of a few things (what the deposit costs, when it is due), and names others without telling
them. Each fact that it tells is asked for, and so are facts of the same things, and of others, that it does not tell.
Nothing that is made stands for anybody. The same seed makes the same texts.
"""

import random
import re
import tomllib
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tools.papers.values import Speaker

_LISTS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def articles(count: int, seed: int) -> list[dict[str, Any]]:
    """Made texts with answered and unanswered questions, an article of SQuAD's form each."""
    rng = random.Random(seed)
    return [{"title": "made", "paragraphs": [_paragraph(rng)]} for _ in range(count)]


def _paragraph(rng: random.Random) -> dict[str, Any]:
    say = Speaker(rng)
    while say.language not in _LISTS:
        say = Speaker(rng)
    lists, other = _LISTS[say.language], "es" if say.language == "en" else "en"
    asked = lists if rng.random() < 0.8 else _LISTS[other]
    things, facts = rng.sample(range(len(lists["things"])), 5), lists["facts"]
    told = rng.sample([(thing, index) for thing in things[:4] for index in range(len(facts))], rng.randint(3, 6))
    text, values = "", dict[tuple[int, int], dict[str, Any]]()
    for thing, index in reversed(told):
        if rng.random() < 0.3:
            text += _about(rng.choice(lists["mentions"]), lists["things"][rng.choice(things[:4])]) + " "
        value = _value(say, lists, facts[index]["kind"])
        sentence = _about(rng.choice(facts[index]["sentences"]), lists["things"][thing])
        values[thing, index] = {"text": value, "answer_start": len(text) + sentence.index("V")}
        text += sentence.replace("V", value, 1) + (" " if rng.random() < 0.9 else "\n\n")

    def question(thing: int, index: int) -> dict[str, Any]:
        question = _about(rng.choice(asked["facts"][index]["questions"]), asked["things"][thing])
        answers = [values[thing, index]] if (thing, index) in values else []
        return {"question": question, "answers": answers, "is_impossible": not answers}

    questions = [question(*one) for one in told[:3]]
    # Facts of a kind that the text has, of another thing, and other facts of its things.
    kinds = {facts[index]["kind"] for _, index in told}
    untold = [(thing, index) for thing in things for index in range(len(facts)) if (thing, index) not in values]
    untold.sort(key=lambda one: (facts[one[1]]["kind"] not in kinds, rng.random()))
    questions += [question(*one) for one in untold[:3]]
    return {"context": text.strip(), "qas": questions}


def _about(sentence: str, thing: str) -> str:
    text = re.sub(r"\bT\b", thing, sentence)
    text = re.sub(r"\b(de|a) el\b", lambda match: match[1][:1] + ("el" if match[1] == "de" else "l"), text)
    return text[0].upper() + text[1:]


def _value(say: Speaker, lists: dict[str, Any], kind: str) -> str:
    rng = say.rng
    makers: dict[str, Callable[[], str]] = {
        "money": lambda: (
            say.money(Decimal(rng.choice((rng.randint(2, 99), rng.randint(100, 90_000)))))
            if rng.random() < 0.6
            else f"{rng.randint(2, 900)} euros"
        ),
        "date": lambda: say.date(date(2015, 1, 1) + timedelta(days=rng.randrange(5_000))),
        "person": say.person,
        "company": say.company,
        "time": lambda: f"{rng.randint(2, 12)} {rng.choice(lists['times'])}",
        "count": lambda: str(rng.randint(2, 400)),
        "year": lambda: str(rng.randint(1880, 2024)),
        "phone": lambda: f"{rng.randint(600, 999)} {rng.randint(100, 999)} {rng.randint(100, 999)}",
    }
    return makers[kind]()
