"""What the made invoices sell: (description, least price, greatest price, rate of tax), by trade."""

from __future__ import annotations

from decimal import Decimal
from random import Random

from benchmarks.fields_designs.invoice import Line

Goods = tuple[tuple[str, float, float, str], ...]

HOTEL: Goods = (
    ("Habitación doble uso individual", 58, 120, "10"),
    ("Desayuno bufé", 8, 16, "10"),
    ("Aparcamiento cubierto", 12, 22, "21"),
    ("Media pensión", 18, 32, "10"),
    ("Minibar", 3, 14, "10"),
    ("Sala de reuniones, medio día", 90, 180, "21"),
)
TELECOM: Goods = (
    ("Cuota fibra 600 Mb", 24, 38, "21"),
    ("Línea móvil 30 GB", 9, 19, "21"),
    ("Llamadas a números especiales", 0.4, 9, "21"),
    ("Alquiler del descodificador", 2, 6, "21"),
    ("Datos en itinerancia fuera de la UE", 3, 28, "21"),
    ("Paquete de canales Cine", 7, 15, "21"),
)
WORKSHOP: Goods = (
    ("Sustitución de correa de distribución", 45, 62, "21"),
    ("Filtro de habitáculo", 12, 30, "21"),
    ("Aceite 5W30, litro", 8, 14, "21"),
    ("Neumático 205/55 R16 91V", 62, 118, "21"),
    ("Pastillas de freno delanteras", 34, 76, "21"),
    ("Diagnosis electrónica", 30, 55, "21"),
    ("Líquido anticongelante 5 L", 11, 19, "21"),
)
FARM: Goods = (
    ("Saco de pienso compuesto 25 kg", 9, 17, "10"),
    ("Semilla de trébol blanco, kg", 6, 11, "10"),
    ("Manguera trenzada 25 m", 22, 41, "21"),
    ("Leche en polvo para terneros", 38, 60, "10"),
    ("Patata de siembra variedad Agria", 1, 3, "4"),
    ("Tijera de podar profesional", 28, 55, "21"),
    ("Fertilizante NPK 15-15-15", 19, 33, "10"),
    ("Guante de piel flor, par", 4, 9, "21"),
    ("Abono foliar 1 l", 7, 15, "10"),
    ("Poste de castaño 2 m", 3, 7, "21"),
)
BUILDING: Goods = (
    ("Demolición de tabique de ladrillo hueco, m2", 11, 19, "10"),
    ("Alicatado con azulejo 20x60, m2", 28, 44, "10"),
    ("Punto de luz conmutado", 35, 60, "10"),
    ("Pintura plástica lisa mate", 5, 9, "10"),
    ("Retirada de escombro en contenedor 6 m3", 120, 190, "10"),
    ("Tubería multicapa de 20 mm, ml", 4, 8, "10"),
    ("Falso techo de placa de yeso", 21, 33, "10"),
    ("Puerta de paso lacada en blanco, montada", 180, 290, "10"),
    ("Mecanismo enchufe Schuko 16 A", 6, 13, "10"),
    ("Mortero autonivelante, capa de 3 cm", 9, 16, "10"),
)
WRITING: Goods = (
    ("Traducción jurada de escritura, 14 folios", 160, 420, "21"),
    ("Revisión de estilo del informe anual", 140, 380, "21"),
    ("Sesión fotográfica de producto", 200, 600, "21"),
    ("Ilustración de cubierta", 250, 700, "21"),
    ("Clase magistral en el máster de edición", 120, 300, "21"),
    ("Maquetación de catálogo de 48 páginas", 300, 900, "21"),
)
ADVICE: Goods = (
    ("Iguala mensual asesoramiento laboral", 60, 140, "21"),
    ("Confección del impuesto de sociedades", 150, 320, "21"),
    ("Tramitación de escritura de compraventa", 180, 360, "21"),
    ("Redacción de contrato de arras", 90, 210, "21"),
)
CARE: Goods = (
    ("Limpieza bucal con ultrasonidos", 40, 70, "0"),
    ("Endodoncia molar", 150, 240, "0"),
    ("Sesión de rehabilitación de hombro", 28, 45, "0"),
    ("Corona de circonio", 260, 390, "0"),
    ("Curso de alemán B1, trimestre", 180, 310, "0"),
)
CANARY: Goods = (
    ("Alquiler de furgoneta, día", 38, 62, "7"),
    ("Caja de plátano primera, 18 kg", 16, 27, "3"),
    ("Revisión de extintor 6 kg", 9, 16, "7"),
    ("Toldo brazo extensible 4x3", 340, 610, "7"),
    ("Garrafa de gofio de millo, 5 kg", 8, 14, "3"),
)
BAR: Goods = (
    ("Café cortado", 1.2, 1.8, "10"),
    ("Tostada con tomate", 1.8, 3.1, "10"),
    ("Menú del día", 11.5, 15.9, "10"),
    ("Caña", 1.4, 2.4, "10"),
    ("Ración de croquetas", 7.5, 11, "10"),
    ("Agua sin gas 50 cl", 1.1, 1.9, "10"),
    ("Pincho de tortilla", 2.2, 3.6, "10"),
)
SHOP: Goods = (
    ("LLAVE FIJA 12/13", 3.9, 8.9, "21"),
    ("BOMBILLA LED E27 9W", 2.3, 5.5, "21"),
    ("CUENTO INFANTIL TAPA DURA", 8, 15, "4"),
    ("MASILLA REPARADORA 500G", 4, 8, "21"),
    ("PILAS AAA BLISTER 4", 2.9, 6.9, "21"),
    ("CANDADO LATON 40", 5.5, 12, "21"),
    ("AGUA DESTILADA 5L", 1.9, 3.5, "21"),
)
BRITISH: Goods = (
    ("Supply and fit oak handrail", 240, 560, "20"),
    ("Rewire consumer unit", 380, 650, "20"),
    ("Children's picture books, assorted", 4, 9, "0"),
    ("Scaffold hire, per week", 90, 180, "20"),
    ("Call-out, out of hours", 75, 120, "20"),
    ("Energy saving boiler controls", 130, 260, "5"),
    ("Bookbinding, half leather", 60, 145, "20"),
)
AMERICAN: Goods = (
    ("Brand naming workshop", 900, 2400, "1"),
    ("Gasket kit, nitrile", 12, 38, "1"),
    ("Hydraulic hose assembly 3/8 in", 24, 66, "1"),
    ("Landscape maintenance, weekly visit", 80, 190, "1"),
    ("Custom signage, 4 x 8 ft", 320, 640, "1"),
    ("Cold brew concentrate, gallon", 18, 36, "1"),
    ("Freight pallet, heat treated", 11, 21, "1"),
)
DINER: Goods = (
    ("Buttermilk Pancakes", 8, 13, "1"),
    ("Turkey Club", 10, 15, "1"),
    ("Iced Tea", 2, 4, "1"),
    ("Side Home Fries", 3, 6, "1"),
    ("Key Lime Pie", 5, 8, "1"),
)
IRISH: Goods = (
    ("Timber decking boards 4.8m", 14, 26, "23"),
    ("Labour, two fitters per day", 320, 480, "13.5"),
    ("Skip hire 8 yard", 210, 280, "13.5"),
    ("Masonry paint 10L", 38, 62, "23"),
    ("Garden wall capping stone", 6, 15, "23"),
)
GERMAN: Goods = (
    ("Wartung Heizungsanlage", 95, 190, "19"),
    ("Edelstahlgeländer nach Aufmaß", 420, 980, "19"),
    ("Fachbuch Schweißtechnik", 29, 48, "7"),
    ("Anfahrtspauschale", 25, 45, "19"),
    ("Netzwerkkabel Cat 7, 50 m", 34, 60, "19"),
    ("Bauernbrot, 2 kg", 6, 9, "7"),
)
FRENCH: Goods = (
    ("Pose de parquet chêne massif", 35, 60, "10"),
    ("Reliure dos carré collé, format A5", 3, 7, "20"),
    ("Panier de pommes Reinette, 5 kg", 9, 15, "5.5"),
    ("Forfait déplacement", 30, 55, "20"),
    ("Impression affiches A2", 2, 5, "20"),
)
CATALAN: Goods = (
    ("Armari encastat a mida", 480, 920, "21"),
    ("Impressió de fulletons A5", 0.1, 0.4, "21"),
    ("Novel·la butxaca", 8, 12, "4"),
    ("Caixa de préssecs d'Ordal", 11, 19, "4"),
    ("Muntatge i desplaçament", 45, 90, "21"),
)
PORTUGUESE: Goods = (
    ("Portão em ferro galvanizado", 340, 720, "23"),
    ("Toalha turca bordada", 9, 18, "23"),
    ("Farinha de milho, saco 10 kg", 7, 12, "6"),
    ("Impressão de cartões de visita", 18, 35, "23"),
    ("Mão de obra de serralheiro, hora", 16, 24, "23"),
)
NOTARY: Goods = (
    ("Núm. 2.1 Documento de cuantía", 90, 410, "21"),
    ("Núm. 4 Copias autorizadas", 14, 60, "21"),
    ("Núm. 7 Folios de matriz", 6, 48, "21"),
    ("Núm. 6 Diligencia de presentación telemática", 12, 24, "21"),
    ("Testimonio de legitimación de firmas", 6, 15, "21"),
)
LIFT: Goods = (
    ("Mantenimiento todo riesgo, ascensor 4 paradas", 68, 140, "21"),
    ("Sustitución de cerradura de cabina", 45, 110, "21"),
    ("Línea telefónica de emergencia", 9, 16, "21"),
    ("Lectura de contadores de agua caliente", 1, 3, "21"),
    ("Limpieza de portal y escalera, mes", 120, 260, "21"),
)
STUDIO: Goods = (
    ("Diseño de identidad para feria", 380, 900, "21"),
    ("Horas de programación", 38, 65, "21"),
    ("Alojamiento web anual", 60, 140, "21"),
    ("Campaña en redes, abril-mayo", 240, 520, "21"),
    ("Acta de reunión y memoria técnica", 55, 120, "21"),
)
COURSES: Goods = (
    ("Curso de carretilla elevadora, 20 h", 110, 240, "0"),
    ("Manipulador de alimentos, grupo", 180, 320, "0"),
    ("Inglés B2 en la empresa, abril", 240, 460, "0"),
    ("Material didáctico", 12, 30, "0"),
)
MEALS: Goods = (
    ("ENSALADA DE LA CASA", 8, 13, "10"),
    ("RAPE A LA PLANCHA", 18, 27, "10"),
    ("CHULETÓN (KG)", 42, 62, "10"),
    ("VINO TINTO CRIANZA", 14, 26, "10"),
    ("PAN Y APERITIVO", 1.5, 2.8, "10"),
    ("CAFÉ SOLO", 1.3, 1.9, "10"),
    ("TARTA DE QUESO", 5, 7.5, "10"),
)
PLUMBER: Goods = (
    ("Fit new kitchen mixer tap", 65, 130, "20"),
    ("Clear blocked soil stack", 90, 180, "20"),
    ("Copper pipe, fittings and sealant", 18, 75, "20"),
    ("Power flush radiators x 8", 280, 420, "20"),
    ("Boiler service and safety record", 75, 110, "20"),
)
MARKET: Goods = (
    ("USB-C docking station, 11 ports, grey", 38, 90, "21"),
    ("Ergonomic vertical mouse, wireless", 17, 39, "21"),
    ("Replacement ear pads (pair) for headset", 9, 18, "21"),
    ("Noise filter mains cable 1.8 m", 11, 24, "21"),
)
FREELANCE: Goods = (
    ("Montage vidéo, 3 minutes", 180, 420, "0"),
    ("Relecture d'un rapport (48 pages)", 120, 260, "0"),
    ("Journée d'animation d'atelier", 300, 520, "0"),
    ("Frais de train Paris-Lyon", 60, 140, "0"),
)


def lines_of(
    random: Random, goods: Goods, count: int, *, most: int = 9, halves: bool = False, discounted: bool = False
) -> list[Line]:
    """So many lines; goods are repeated with other words behind them where there are too few.

    Args:
        most: of a line.
        halves: quantities such as 2.5 occur.
        discounted: some lines have a rate of discount.
    """
    chosen = random.sample(goods, min(count, len(goods)))
    chosen += [random.choice(goods) for _ in range(count - len(chosen))]
    lines = []
    for index, (name, least, greatest, rate) in enumerate(chosen):
        again = f" ({random.choice('ABCDEFGH')}-{index})" if index >= len(goods) else ""
        quantity = Decimal(random.randrange(1, most + 1))
        if halves and random.random() < 0.3:
            quantity += Decimal("0.5")
        price = Decimal(str(round(random.uniform(least, greatest), 2)))
        discount = Decimal(random.choice((0, 0, 5, 10, 15))) if discounted else Decimal(0)
        code = f"{random.choice('KMTZ')}{random.randrange(100, 999)}-{random.randrange(10, 99)}"
        lines.append(Line(name + again, quantity, price, Decimal(rate), discount, code))
    return lines
