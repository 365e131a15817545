"""Sentences that open with a reference to what was said before: "Además", "This", "Dicho". Without it they mislead.

Written for this project: pronouns, demonstratives and connectors of closed kinds, Spanish and English.
"""

from __future__ import annotations

import re

# An opener of several words has "_" between them.
_SPANISH = """
a_continuación a_este_respecto a_pesar_de_ello a_su_vez además adicionalmente ahora_bien ahí al_mismo_tiempo
al_respecto allí ambas ambos ante_ello análogamente aparte_de_esto aquel aquella aquellas aquello aquellos aquí
asimismo así aun_así con_ello con_eso con_este_fin consecuentemente consiguientemente de_ahí de_ahí_que de_ese_modo
de_esta_forma de_esta_manera de_este_modo de_forma_similar de_hecho de_igual_forma de_igual_manera de_igual_modo
de_la_misma_forma de_la_misma_manera del_mismo_modo dicha dichas dicho dichos el_cual el_mismo ella ellas ello ellos
empero en_cambio en_consecuencia en_definitiva en_ese_caso en_este_caso en_este_sentido en_otras_palabras
en_segundo_lugar en_tal_caso en_tercer_lugar entonces es_decir esa esas ese eso esos esta estas este esto estos
finalmente igualmente la_cual la_misma las_mismas les lo_anterior lo_cual lo_mismo los_mismos luego mientras_tanto
no_obstante o_sea para_ello para_eso pero por_consiguiente por_ejemplo por_el_contrario por_ello por_eso
por_esta_razón por_estas_razones por_este_motivo por_lo_cual por_lo_que por_lo_tanto por_otra por_otra_parte por_otro
por_otro_lado por_su_parte por_tanto por_último posteriormente pues pues_bien referida referidas referido referidos
sin_embargo sino su sus tal tal_como tales también tampoco tanto_es_así y él
"""

_ENGLISH = """
accordingly additionally afterwards all_of_this also alternatively and as_a_consequence as_a_result as_such
at_that_time at_the_same_time because_of_this besides both but by_contrast by_then consequently conversely
despite_this either even_so finally for_example for_instance for_that_reason for_these_reasons for_this_reason
furthermore he he's hence her here his however if_so in_addition in_both_cases in_contrast in_either_case in_fact
in_other_words in_particular in_such_a_case in_such_cases in_that_case in_the_latter_case in_this_case in_this_context
in_this_regard in_this_respect in_this_way in_turn indeed instead it it's its lastly later latter likewise meanwhile
moreover namely neither nevertheless nonetheless nor notwithstanding_this on_the_contrary on_the_one_hand on_the_other
on_the_other_hand or otherwise secondly she she's similarly so some_of_them specifically still subsequently such that
that's the_former the_latter the_other the_others the_same their them then thence thereafter thereby therefore these
they they're thirdly this those though thus to_that_end to_this_end too under_these_circumstances what_is_more which
with_this yet
"""

# What may stand before a pronoun at the beginning: "Según él", "A pesar de ello", "Because of them", "Most of them".
_BEFORE_PRONOUNS = {
    "es": """
a además aparte acerca alguna algunas alguno algunos ante antes bajo buena cada causa como con conforme consecuencia
contra contrario cuatro cualquiera cuanto de debido dentro desde después detrás dos durante efecto ejemplo en encima
entre excepto fin fruto frente fuera gracias hacia hasta incluso junto la las lo los lejos luego mayoría mediante
mitad muchas muchos más ninguna ninguno para parte pesar pese por prueba raíz respecto resto salvo según si sin sobre
solo sólo tanto tenor toda todas todo todos tras tres una uno uso varias varios vez virtud vista
""",
    "en": """
about above according after against all along among and any apart around as aside at because before behind below
beside besides between beyond both by concerning contrary despite due during each either even every except few
following for from given half if in inside instead into like many more most near neither next none of on one only out
over part per prior regarding several since some subject such than thanks three through throughout to together toward
towards two under unlike until up upon via view with within without
""",
}
_PRONOUNS = {
    "es": """
él ella ellas ello ellos esto eso aquello este esta estos estas ese esa esos esas aquel aquella aquellos aquellas
dicho dicha dichos dichas tal tales lo_anterior lo_cual éste ésta éstos éstas
""",
    "en": "him her it them this that these those",
}

# What a document calls itself: "This agreement", "Este contrato" refer to nothing that was said before.
_ITSELF = """
acta acuerdo agreement anexo anexos annex announcement anuncio appendix article artículo auto aviso boletín book
brochure carta certificado certificate circular comunicación comunicado contract contrato convenio correo decision
decreto deed dictamen directiva directive document documento email escrito escritura estudio factura filing folleto
form formulario guide guía handbook impreso informe instrucción instrumento invoice lease letter ley libro licence
license manual memorandum memoria mensaje message minuta notice notificación oferta offer orden order page paper plan
pliego poder policy política presentación press presupuesto programa prospectus protocolo publicación publication
página real reglamento regulation release report resolución resolution resumen review sección section sentencia site
sitio solicitud statement study summary survey tesis thesis trabajo tratado treaty web website
"""

_DEMONSTRATIVES = frozenset(["este", "esta", "estos", "estas", "this", "these"])
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")  # with what follows an apostrophe: "it's"
_LONGEST_OPENER = 4  # words
_MOST_BEFORE_A_PRONOUN = 4  # words: "como consecuencia de ello" has three
_READ_CHARS = 80  # of a sentence's beginning


def _openers(words: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(opener.split("_")) for opener in words.split())


_OPENERS = {"es": _openers(_SPANISH), "en": _openers(_ENGLISH), None: _openers(_SPANISH + _ENGLISH)}
_LEADING: dict[str | None, frozenset[str]] = {
    **{language: frozenset(words.split()) for language, words in _BEFORE_PRONOUNS.items()},
    None: frozenset(" ".join(_BEFORE_PRONOUNS.values()).split()),
}
_POINTING: dict[str | None, frozenset[tuple[str, ...]]] = {
    **{language: _openers(words) for language, words in _PRONOUNS.items()},
    None: _openers(" ".join(_PRONOUNS.values())),
}
_DOCUMENTS = frozenset(_ITSELF.split())


def opens_with_reference(sentence: str, language: str | None) -> bool:
    """Whether a sentence opens with a word that points back to the one before it.

    Args:
        language: ISO 639-1; None looks for both languages' words, one without a list for none.
    """
    openers = _OPENERS.get(language)
    if openers is None:
        return False
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(sentence[:_READ_CHARS])]
    if words[:1] and words[0] in _DEMONSTRATIVES and words[1:2] and words[1] in _DOCUMENTS:
        return False
    if any(tuple(words[:count]) in openers for count in range(1, min(_LONGEST_OPENER, len(words)) + 1)):
        return True
    return _has_pronoun_first(words, language)


def _has_pronoun_first(words: list[str], language: str | None) -> bool:
    """Whether nothing but prepositions and the like stands before the first pronoun: "Según él", "Most of them"."""
    for place, word in enumerate(words[: _MOST_BEFORE_A_PRONOUN + 1]):
        if place and ((word,) in _POINTING[language] or tuple(words[place : place + 2]) in _POINTING[language]):
            return not (word in _DEMONSTRATIVES and words[place + 1 : place + 2] and words[place + 1] in _DOCUMENTS)
        if word not in _LEADING[language]:
            return False
    return False
