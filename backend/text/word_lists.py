"""Word lists: function words (stop words) by language, other words that make no key phrase, abbreviations.

Written for this project: articles, prepositions, pronouns, conjunctions, auxiliary verbs and adverbs of closed kinds.
Public lists (such as stopwords-iso) also contain "amount", "bill", "interest", "net", "cuenta", "total" and "valor",
which are what financial documents are about.
"""

from __future__ import annotations

from collections.abc import Mapping

_ENGLISH = """
a about above across after again against all almost along already also although always am among an and another any
anyone anything applicable are around as at away back be became because become been before behind being below between
both but by can cannot certain certainly could did do does doing done down due during each either else enough etc even
ever every everyone everything except few first for from further get gets given gives go goes got had has have having
he hence her here hereby herein hereof hereto hereunder hers herself him himself his how however i if in include
included includes including inc indeed instead into is it its itself just last least less let like ltd made mainly
make makes making many may me might more moreover most mostly mr mrs ms much must my myself near neither never next no
nobody none nor not nothing now of off often on once one only onto or other others otherwise our ours out outside over
own per perhaps please pursuant put quite rather regarding related respectively said same say says see seem seemed
seems several shall she should similar since so some someone something still subject such take taken than that the
their theirs them themselves then there thereby therefore therein thereof thereto these they thing this those though
through throughout thus to together too took totaling totalling toward towards two three under until unless up upon us
use used uses using various very via was way we well went were what whatever when where whereas whereby wherein
whether which while who whole whom whose why will with within without would yet you your yours yourself don't doesn't
didn't isn't aren't wasn't weren't won't can't couldn't it's that's there's we're they're i'm i've we've
"""

_SPANISH = """
a acá además ahí ahora al algo alguien algún alguna algunas alguno algunos allá allí ambas ambos ante anterior antes
apenas aquel aquella aquellas aquello aquellos aquí así asimismo aun aún aunque bajo bastante bien cabe cada casi
cerca cierta ciertas cierto ciertos como cómo con conforme conmigo contra cual cuál cuales cuáles cualquier cualquiera
cuando cuándo cuanto cuánto cuya cuyas cuyo cuyos da dado dan de debe deben debido debía decir deja del demás dentro
desde después dice dicen dicha dichas dicho dichos dio donde dónde dos durante e efectuado el él ella ellas ello ellos
empero en encima entonces entre era eran es esa esas ese eso esos esta está estaba estaban estado están estar estas
estás este esté esto estos etc ex excepto fin fue fuera fueron gracias ha haber había habían habida habido hace hacen
hacer hacia haciendo han hasta hay haya hayan he hecho hemos hizo hoy hubo igual igualmente incluida incluido incluso
junto la las le les lo los luego más me mediante menos mí mi mía mientras mío mis misma mismas mismo mismos mucha
muchas mucho muchos muy nada nadie ni ningún ninguna ninguno no nos nosotros nuestra nuestras nuestro nuestros nunca o
obstante os otra otras otro otros para parece pero poca pocas poco pocos podía podrá podrán por porque posterior pudo
puede pueden pues que qué quien quién quienes quiere respecto salvo se sea sean según segunda segundo sendas sendos
ser será serán sería si sí sido siempre siendo siguiente siguientes sin sino sobre sólo solo son su sus suya suyas
suyo suyos tal tales también tampoco tan tanta tantas tanto tantos te tendrá tenemos tener tenía tiene tienen toda
todas todavía todo todos tras tres tu tú tuvo tus u un una unas uno unos usted ustedes va van varias varios ver vez
veces vía virtud y ya yo sr sra srta sres d dña don doña núm art arts pág págs
"""

_CATALAN = """
a això aixó així al algun alguna algunes alguns allà allò als altra altre altres amb ambdós abans aquell aquella
aquelles aquells aquest aquesta aquestes aquests aquí baix bé cada cal com con contra d'un d'una damunt de del dels
des després dins dintre doncs durant e el ell ella elles ells els em en encara ens entre era eren és esser està estan
estar estat et etc fa fan fer feu fins fou gaire ha han hagi havia havien haver he hem hi ho i igual in jo l la les li
llarg llavors lo los ma malgrado mateix mateixa mateixos meu meva mentre més mes molt molta moltes molts mon n ni no
nosaltres nostra nostre nostres o on pel pels per perquè però poc poden pot potser quan quant que què quin quina qui s
sa se ser serà seran seu seus seva seves sense segons si sí sigui sinó sobre solament són sota sovint també tan tant
te té tenen tenir ter teu tot tota totes tots tu un una unes uns us va van vàrem vostè vostra vostre va ja
"""

_PORTUGUESE = """
a acerca agora ainda além algo alguém algum alguma algumas alguns ali ambos ante antes ao aos apenas após aquela
aquelas aquele aqueles aqui aquilo as assim até através bem cada caso com como contra da das de dela delas dele deles
demais depois desde dessa desse desta deste deve devem disso disto do dois dos durante e é ela elas ele eles em embora
enquanto entanto entre era eram essa essas esse esses esta está estão estas estava estavam este estes eu etc exceto
faz fez foi for foram fosse há havia isso isto já la lhe lhes lo mais mas me mediante meio menos mesma mesmas mesmo
mesmos meu meus minha muita muitas muito muitos na nada não nas nem nenhum nenhuma nessa nesse nesta neste no nos nós
nossa nossas nosso nossos num numa nunca o onde os ou outra outras outro outros para pela pelas pelo pelos perante
pode podem pois por porém porque pouco própria próprio qual quais qualquer quando quanto que quem se seja sejam sem
sempre sendo ser será serão si sido sob sobre sua suas seu seus são só somente tal também tampouco tanto te tem têm
ter teve tinha toda todas todo todos três tu um uma umas uns vai vários você vos foi à às
"""

_GALICIAN = """
a aínda algo alguén algún algunha algunhas algúns alí ante antes ao aos apenas aquel aquela aqueles aquí as así até
ata ben cada coa coas co cos como con contra cuxa cuxo da das de dela delas del deles desde despois do dos durante e é
el ela elas eles en entre era eran ese esa eses esas esta está están este estes foi foron hai iso isto lle lles máis
mais mentres menos mesma mesmo moi moita moito moitos na nas nin ningún non no nos nosa noso nunca o onde os ou outra
outras outro outros para pero pode poden pola polas polo polos por porque pois que quen se sen ser será seu seus si
sido só sobre súa súas tal tamén tan tanto te ten teñen ter toda todas todo todos un unha unhas uns vai xa á ás ó ós
"""

_FRENCH = """
a à afin ai ainsi alors après as au aucun aucune aujourd'hui auprès aussi autant autre autres aux avaient avait avant
avec avez avoir avons ayant beaucoup bien c car ce ceci cela celle celles celui cependant ces cet cette ceux chacun
chaque chez comme comment contre d dans de déjà depuis des dès desquels dessous dessus deux devant doit doivent donc
dont du durant elle elles en encore enfin entre est et étaient était étant été être eu eux eût fait faire faut fois
font fut hors ici il ils j je jusque jusqu l la laquelle là le lequel les lesquels leur leurs lors lorsque lui m ma
mais mal malgré me même mêmes mes mien moi moins mon n ne ni non nos notre nous nouveau on ont ou où par parce parmi
pas pendant peu peut peuvent plus plusieurs plutôt pour pourquoi près puis qu quand que quel quelle quelles quelque
quelques quels qui quoi s sa sans sauf se selon sera seront ses si sien sinon soi soit son sont sous suivant sur t ta
tandis tant te tel telle telles tels tes toi ton toujours tous tout toute toutes très trois trop tu un une unes uns
vers voici voilà vont vos votre vous y
"""

_ITALIAN = """
a abbia abbiamo ad agli ai al alcun alcuna alcune alcuni alla alle allo allora altra altre altri altro ambedue anche
ancora appena assai attraverso avendo aver avere aveva avevano avrà ben bene c che chi ci ciascun ciascuno cioè ciò
col come con contro cosa così cui d da dagli dai dal dalla dalle dallo davanti degli dei del dell della delle dello
dentro deve devono di dice dopo dove dovrà due dunque durante e è ecc ed egli ella entro era erano essa esse essere
essi esso fa fanno fin fino fra fu fuori furono gli ha hanno ho i il in infatti inoltre invece io l la le lei li lo
loro ma mediante meno mentre mi mia mie miei mio modo molta molte molti molto ne nè né negli nei nel nell nella nelle
nello nessun nessuna nessuno noi non nostra nostre nostri nostro o od ogni oltre oppure ora per perché però piú più
poco poi possono presso prima proprio può pure qual quale quali qualche quando quanto quasi quella quelle quelli
quello questa queste questi questo qui quindi sarà saranno se sé secondo sei senza sia siano si solo sono sopra sotto
sta stata state stati stato su sua sue sugli sui sul sulla sulle suo suoi tale tali tanto te tra tre tu tua tue tuo
tutta tutte tutti tutto un una uno verso vi voi vostra vostro
"""

_GERMAN = """
ab aber alle allem allen aller alles als also am an andere anderem anderen anderer anderes auch auf aus außer bei
beide beiden beim bereits bevor bis bisher bist bzw da dabei dadurch dafür dagegen daher damit danach daneben dann
daran darauf daraus darf darin darüber darum das dass daß davon dazu dein deine dem den denen denn dennoch der deren
derer dermaßen derselbe des deshalb dessen dich die dies diese diesem diesen dieser dieses doch dort du durch dürfen
ein eine einem einen einer eines einige einigen einmal er es etc etwa etwas euch euer für gegen gegenüber gemäß hab
habe haben hat hatte hatten her hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im immer in
innerhalb ins ist ja jede jedem jeden jeder jedes jedoch jene jener jetzt kann kein keine keinem keinen keiner können
könnte konnte laut man manche mehr mein meine mich mir mit muss muß müssen nach nachdem nein nicht nichts noch nun nur
ob oder ohne per sehr sei seid sein seine seinem seinen seiner seit selbst sich sie sind so sobald sofern sogar solche
solchen soll sollen sollte sondern sonst soweit sowie sowohl statt über um und uns unser unsere unseren unter viel
viele vom von vor vorher während wann war waren warum was wegen weil weiter welche welchem welchen welcher welches
wenn wer werden wie wieder will wir wird wo wobei wollen worden wurde wurden würde zu zum zur zwar zwei zwischen
"""

_DUTCH = """
aan af al alle als altijd ander andere bij binnen daar dan dat de der deze die dit doch doen door dus een eens en er
ge geen gegeven had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar me meer
men met mij mijn moet na naar niet niets nog nu of om omdat ons ook op over per reeds te tegen ten ter toch toen tot
tussen uit uw van veel voor want waren was wat we wel werd wezen wie wij wil worden wordt zal ze zelf zich zij zijn zo
zonder zou
"""

_NUMBERS = """
january february march april june july august september october november december monday tuesday wednesday thursday
friday saturday sunday hundred thousand million millions billion billions enero febrero marzo abril mayo junio julio
agosto septiembre setiembre octubre noviembre diciembre lunes martes miércoles jueves viernes sábado domingo cien
ciento mil miles millón millones
"""

_VAGUE = """
amount amounts article articles case cases clause date dates day days end ended example exhibit fact following form
hour kind month months name new number page paragraph part parties party period place purpose purposes section
sections state thing things time times type way week word year years anexo apartado artículo artículos año años caso
casos causa clase cláusula cosa dato datos día días efecto ejemplo fecha fechas forma hecho hora horas lugar manera
mes meses modo momento motivo nombre número objeto parte partes período periodo persona página punto semana semanas
tiempo tipo veces virtud vista
"""

_VERBS = """
accrue agree agrees allow allows apply applies became become becomes began bring came come comes consider continue
continues deem deemed depend depends expire expires find follow follows forth found gave give hold held help helps
keep kept know known lead led leave left lie means meant need needs occur occurs provide provides remain remains
require requires retain retains run runs saw sell set sent show shown shows speak spoke tell think thought told try
want went write written wrote accede acordó adoptó alega cabe consta contiene corresponde cuenta dar declara dispone
establece existe figura firma fije hallaba inició obtuvo ocurre permite pide presenta produce provino quedar quedó
reconoce refiere regula resulta resultó señala sostiene solicita trata vino vive
"""

_BEFORE_WORDS = """
sr sra srta sres sras dª dña dn dr dra dres prof profa lic lcdo lcda ing arq excmo excma ilmo ilma rvdo fdo fdª
mr mrs ms messrs st gen col capt sgt rev hon gov sen rep pres mme mlle hr fr hno hnos vda av avd avda pza plza
ctra urb pol ntra ntro sta sto gral p.ej ej e.g i.e eg ie vs cf cfr vid v.gr viz approx aprox incl z.b d.h u.a
bzw ca
"""

_BEFORE_NUMBERS = """
no nos nº núm núms num nro n.º n.o n.ª art arts artº apdo ap sec sect secc cap caps ch par párr pár pfo pág págs
pag p pp pg vol vols fig figs ed exp expte ref tel tlf tfno tfn fax cod cód cta ley op cit tit tít lib disp adic
rec roj abs nr ref.ª m.p km
"""

_MAY_END = """
inc ltd co corp llc plc jr bros assn dept est etc cía cia ltda sl sa s.a s.l u.s u.k ee.uu aa.vv a.m p.m ph.d
ene feb mar abr may jun jul ago sep sept oct nov dic jan apr aug dec mon tue wed thu fri sat sun
"""

_LISTS = {
    "en": _ENGLISH, "es": _SPANISH, "ca": _CATALAN, "pt": _PORTUGUESE, "gl": _GALICIAN,
    "fr": _FRENCH, "it": _ITALIAN, "de": _GERMAN, "nl": _DUTCH,
}  # fmt: skip
FUNCTION_WORDS = {code: frozenset(words.split()) for code, words in _LISTS.items()}
# Number words and parts of dates, English and Spanish: they end a phrase, as figures do.
NUMBER_WORDS = frozenset(_NUMBERS.split())
# Too vague alone, but part of a name with others: "fiscal year", "fecha de vencimiento".
VAGUE_WORDS = frozenset(_VAGUE.split())
# Verbs common in documents that have no verb ending.
COMMON_VERBS = frozenset(_VERBS.split())
# For a text of unknown language: the two most likely ones.
ENGLISH_OR_SPANISH = FUNCTION_WORDS["en"] | FUNCTION_WORDS["es"]
# Abbreviations without their last full stop. These are always followed by something, so they end no sentence;
ABBREVIATIONS_BEFORE_WORDS = frozenset(_BEFORE_WORDS.split())
# these only if a number or the letter of an article follows;
ABBREVIATIONS_BEFORE_NUMBERS = frozenset(_BEFORE_NUMBERS.split())
# these may end a sentence.
ABBREVIATIONS_ANYWHERE = frozenset(_MAY_END.split())
# Words allowed inside a phrase, not at its edge: "p" prepositions, and "a" articles after one: "contrato de la cuenta",
# "cost of the sales".
_CONNECTORS = {
    "en": "of p the a", "es": "de p del p el a la a los a las a lo a",
    "ca": "de p del p dels p el a la a els a les a", "pt": "de p do p da p dos p das p",
    "gl": "de p do p da p dos p das p", "fr": "de p du p des p le a la a les a",
    "it": "di p del p dello p della p dei p degli p delle p dell p", "nl": "van p de a het a",
}  # fmt: skip
CONNECTORS = {
    code: dict(zip(words.split()[::2], words.split()[1::2], strict=True)) for code, words in _CONNECTORS.items()
}


def function_words(language: str | None) -> frozenset[str]:
    """A language's function words in lower case: English and Spanish for None, empty where there is no list."""
    if language is None:
        return ENGLISH_OR_SPANISH
    return FUNCTION_WORDS.get(language, frozenset())


def connectors(language: str | None) -> Mapping[str, str]:
    """Words that may join the words of a phrase, each with "p" or "a": English and Spanish for None."""
    if language is None:
        return CONNECTORS["en"] | CONNECTORS["es"]
    return CONNECTORS.get(language, {})
