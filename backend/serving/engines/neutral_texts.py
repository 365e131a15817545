"""Texts on two dozen different subjects, and what they say about a model's cosines. numpy only, runs no model.

Encoders differ in the cosines they give to texts that have nothing to do with each other: about 0.79 with
multilingual-e5-small, 0.15 with all-MiniLM-L6-v2. The mean over these texts is measured once a model; calibrated scores
start from it, so that their constants suit every encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Each subject once in each language, in the same order. Written for this purpose.
NEUTRAL_TEXTS: Mapping[str, tuple[str, ...]] = {
    "en": (
        "Last month's invoice has not been paid yet and is due next Friday.",
        "The court dismissed the appeal and ordered the company to pay the costs.",
        "It rained along the coast this morning and temperatures will fall in the afternoon.",
        "The home team scored twice in the second half and won the match.",
        "The doctor advised rest and a check of her blood pressure in two weeks.",
        "Parliament passed the bill with the votes of the opposition after a long debate.",
        "The film opens in autumn and tells the life of an opera singer.",
        "The train leaves the station at nine and the hotel is a ten minute walk away.",
        "The river rises in the mountains and crosses three provinces before it reaches the sea.",
        "Researchers measured the light of a distant star with a new telescope.",
        "Fry the onion over a low heat, then add the tomatoes and a pinch of salt.",
        "My sister got married in May and the whole family met in the village.",
        "The castle was built in the twelfth century and fell into ruin after the war.",
        "The program does not start since the last update and shows an error.",
        "Bees collect nectar and pollinate most of the flowering plants.",
        "Students hand in their essays on Monday and the exam is at the end of term.",
        "The company raised its sales by eight per cent and will open two more shops.",
        "A flat with three bedrooms, a terrace, a lift and a parking space is to let.",
        "The car hit a tree and the fire brigade closed the road for an hour.",
        "Mass is held on Sundays at noon in the church of the quarter.",
        "The employment contract is permanent and the salary is paid in twelve instalments.",
        "I am not happy with my order: it came late and the box was broken.",
        "The painter shows her pictures in a small gallery in the centre.",
        "The soldiers crossed the border at night and took the bridge without a shot.",
    ),
    "es": (
        "La factura del mes pasado sigue pendiente de pago y vence el próximo viernes.",
        "El tribunal desestimó el recurso y condenó a la empresa al pago de las costas.",
        "Esta mañana ha llovido en la costa y por la tarde bajarán las temperaturas.",
        "El equipo local marcó dos goles en la segunda parte y ganó el partido.",
        "El médico le recomendó reposo y una revisión de la presión arterial en dos semanas.",
        "El parlamento aprobó la ley con los votos de la oposición tras un largo debate.",
        "La película se estrena en otoño y cuenta la vida de una cantante de ópera.",
        "El tren sale de la estación a las nueve y el hotel está a diez minutos a pie.",
        "El río nace en las montañas y cruza tres provincias antes de llegar al mar.",
        "Los investigadores midieron la luz de una estrella lejana con un nuevo telescopio.",
        "Se sofríe la cebolla a fuego lento y se añaden el tomate y una pizca de sal.",
        "Mi hermana se casó en mayo y toda la familia se reunió en el pueblo.",
        "El castillo fue construido en el siglo XII y quedó en ruinas después de la guerra.",
        "El programa no arranca después de la última actualización y muestra un error.",
        "Las abejas recogen néctar y polinizan la mayor parte de las plantas con flor.",
        "Los alumnos entregan el trabajo el lunes y el examen será a final de curso.",
        "La empresa aumentó sus ventas un ocho por ciento y abrirá dos tiendas más.",
        "Se alquila un piso de tres habitaciones con terraza, ascensor y plaza de garaje.",
        "El coche chocó contra un árbol y los bomberos cortaron la carretera una hora.",
        "La misa se celebra los domingos a las doce en la iglesia del barrio.",
        "El contrato de trabajo es indefinido y el sueldo se abona en doce pagas.",
        "No estoy contento con el pedido: llegó tarde y con la caja rota.",
        "El pintor expone sus cuadros en una pequeña galería del centro.",
        "Los soldados cruzaron la frontera de noche y tomaron el puente sin disparar.",
    ),
}
SUBJECTS = len(NEUTRAL_TEXTS["en"])
ALL_NEUTRAL_TEXTS = tuple(text for texts in NEUTRAL_TEXTS.values() for text in texts)


def unrelated_cosine(first: Array, second: Array) -> float:
    """The mean cosine of two texts on different subjects, whatever their languages.

    Shapes: both (neutral texts, width), of length 1, in the order of ``ALL_NEUTRAL_TEXTS``; two where the model has
    different prompts for the two sides.
    """
    return float((first.astype(np.float64) @ second.astype(np.float64).T)[different_subjects()].mean())


def different_subjects() -> NDArray[np.bool_]:
    """Which pairs of neutral texts are on different subjects. Shape: (neutral texts, neutral texts)."""
    subjects = np.arange(len(ALL_NEUTRAL_TEXTS)) % SUBJECTS
    different: NDArray[np.bool_] = subjects[:, None] != subjects[None]
    return different
