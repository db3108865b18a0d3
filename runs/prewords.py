"""The shipped lists of sensitive phrases by language: (a person takes over, every write needs approval). A paper.

Chosen so that ordinary complaints about money pass: idioms ("this is killing my budget") and names are on no list, and
a bare verb never is. `runs.wordlists` has the same languages. Imports nothing.
"""

from __future__ import annotations


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines() if line.strip())


def _joined(*parts: str) -> tuple[str, ...]:
    """Every way to say it: one word of each part, parts separated by commas."""
    ways: tuple[str, ...] = ("",)
    for part in parts:
        ways = tuple(f"{way} {word.strip()}".strip() for way in ways for word in part.split(","))
    return ways


_SELF_HARM = _joined(
    "kill,killing,hurt,hurting,harm,harming,hang,hanging,shoot,drown,poison,cutting", "myself"
) + _lines("""
    suicide
    suicidal
    self harm
    selfharm
    end my life
    ending my life
    end it all
    ending it all
    take my own life
    taking my own life
    want to die
    wanna die
    wish i was dead
    wish i were dead
    better off dead
    dont want to live
    do not want to live
    dont want to be alive
    do not want to be alive
    no reason to live
    nothing to live for
    cant go on living
    jump off a bridge
    jump off the roof
    jump off a building
    slit my wrists
    slit my throat
    overdosing
    take an overdose
""")
_VIOLENCE = (
    *_joined(
        "i will,ill,im going to,i am going to,gonna,i want to,we will,we are going to",
        "kill,murder,shoot,stab,strangle,hurt,beat,attack",
        "you,him,her,them,someone,somebody,everyone,everybody,all of you",
    ),
    *_joined(
        "kill,murder,hurt,shoot,stab,come after",
        "your",
        "family,wife,husband,kids,children,driver,drivers,staff,employees,people,agent,agents,manager,boss",
    ),
    *_joined("burn down,blow up,bomb,shoot up", "your,the", "office,house,home,store,shop,warehouse,building"),
    *_joined("break your,break his,break her", "legs,neck,bones,arms,jaw"),
    *_lines("""
        kill you all
        kill you people
        kill all of you
        plant a bomb
        have a bomb
        bring a gun
        come with a gun
        i have a gun
        ive got a gun
        put a bullet
        know where you live
        know where you work
        know where your family
        find out where you live
        come after you
        coming after you
        you will die
        youll die
        you are going to die
        you deserve to die
        hope you die
        hope you all die
        watch your back
        smash your face
        smash your head
        slit your throat
        cut your throat
        beat you up
    """),
)
_LAW = _joined(
    "take,taking,drag,dragging",
    "you,this,it,them,your company,the company,the matter",
    "to court,to the court,to consumer court,to the consumer court",
) + _lines("""
    see you in court
    go to court
    going to court
    gone to court
    consumer court
    court case
    court order
    small claims
    lawyer
    lawyers
    attorney
    attorneys
    my solicitor
    legal action
    legal actions
    legal notice
    legal proceedings
    legal advice
    legal case
    lawsuit
    lawsuits
    class action
    litigation
    arbitration
    sue you
    suing you
    sue your company
    sue the company
    sue them
    i will sue
    ill sue
    we will sue
    going to sue
    gonna sue
    want to sue
    press charges
    criminal charges
    criminal complaint
    police
    file an fir
    file a fir
    lodge an fir
    cyber crime
    cybercrime
    breach of contract
    this is illegal
    thats illegal
    that is illegal
    illegal charge
    illegally
    unlawful
    consumer rights
    consumer protection
    consumer law
""")
_REGULATOR = _joined("report,reporting", "you,your company,the company", "to the") + _lines("""
    to the authorities
    ombudsman
    ombudsmen
    ombudsperson
    regulator
    regulators
    regulatory
    trading standards
    consumer forum
    consumer affairs
    consumer commission
    consumer helpline
    better business bureau
    bbb
    ftc
    federal trade commission
    cfpb
    consumer financial protection bureau
    fca
    financial conduct authority
    rbi
    reserve bank
    central bank
    attorney general
    information commissioner
    data protection authority
""")
_FRAUD = (
    _joined("unauthorised,unauthorized", "transaction,transactions,charge,charges,payment,payments,purchase,use")
    + _joined("without my", "permission,consent,authorisation,authorization")
    + _lines("""
    fraud
    frauds
    fraudulent
    fraudulently
    fraudster
    fraudsters
    defrauded
    scam
    scams
    scammed
    scammer
    scammers
    scamming
    phishing
    hacked
    identity theft
    stolen card
    card was stolen
    stole my card
    stole my money
    stolen my money
    stealing my money
    chargeback
    chargebacks
    charge back
    money laundering
""")
)
LANGUAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "en": ((*_SELF_HARM, *_VIOLENCE), (*_LAW, *_REGULATOR, *_FRAUD)),
}
