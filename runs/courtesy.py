"""Whole turns of courtesy in English, as regular expressions over words: the only place where prose may use the words
of which conditions and entitlements are made. A paper: imports nothing.

Each is harmless from its first word to its last, whatever stands around it: what is left of a sentence must do without
such words (`runs.wordlists`).
"""

from __future__ import annotations

WISH = "(?:have|need|want|wish|would like|run into|meet)"
YOU = "(?:you|anyone)"
VERY = "(?:all|also|always|just|really|truly|very|so|ever|even|quite|deeply|again|too|together|still)"
ANY = "(?:a|an|any|some|further|more|other|another|such|the|this|that|these|a few|additional)"
US = "(?:us|me|our team|our colleagues|our support team)"
CONTACT = (
    f"(?:(?:write|reply|reach|talk|speak|get)(?: back| again)?(?: out)? (?:to|with) (?:{US}|this message)|"
    f"(?:contact|message|ask|tell|reach) {US}|reply|ask (?:us )?(?:any |a |further |other )*questions?|reach out|"
    f"get in touch|(?:share|raise) (?:it|this|that) with {US})"
)
HELP = (
    "(?:questions?|quer(?:y|ies)|concerns?|problems?|troubles?|difficult(?:y|ies)|help|support|assistance|"
    "clarification|details?|explanations?|feedback|thoughts?|issues?|patience|understanding|trust|anything|something|"
    "opportunity|conversation|reply|answers?)"
)
HARD = (
    "(?:difficult|hard|frustrating|stressful|upsetting|unpleasant|disappointing|inconvenient|unsettling|troubling|"
    "worrying|unclear|an? (?:problem|worry|trouble|stress|concern|disappointment|frustration|inconvenience))"
)
OF_WHAT = "(?:(?: about| with| regarding| on)? (?:it|this|that|these|your (?:order|request)|the order|anything))?"
TURNS = (
    r"would you like (?:(?:us|me|our team) )?to (?:look at|look into|know|explain|ask|tell|hear|help)",
    r"(?:do|did) you (?:want|wish|need) (?:(?:us|me|our team) )?to (?:look at|look into|know|explain|ask|hear|help)",
    r"(?:what|how|where|which order|which one) (?:should|can|could) (?:we|i) (?:look at|look into|look|explain|ask)",
    r"(?:please )?let (?:us|me|our team) know(?: if (?:we|i|our team) can (?:help|assist)(?: you)?(?: with anything)?"
    r"(?: else| further)?)?",
    r"letting (?:us|me) know",
    r"(?:this|that|it) answers",
    r"giving us (?:the|an|this) (?:opportunity|chance)(?: to (?:help|explain|look into (?:it|this)|answer))?",
    rf"(?:if|when|whenever|should) {YOU} (?:(?:ever|still|should|also|do|may) )*{WISH} (?:for )?(?:{ANY} )*{HELP}"
    rf"(?: (?:else|further|more|again|from us|at all|to (?:share|ask|raise)|(?:we|our team|i) can help (?:you )?with))*"
    rf"{OF_WHAT}",
    rf"(?:if|when|whenever|should) {YOU} (?:would like|want|wish|need) (?:us |our team |me |a colleague |someone )?to "
    r"(?:explain|help|hear|know|understand|ask|tell|look|write|talk|speak|contact us|reach us|reach out|clarify)"
    rf"(?: (?:us|you|more|further|again|anything|something|else))*{OF_WHAT}",
    rf"(?:if|where|when|whenever|should) (?:there (?:is|are|be|was) )?(?:{ANY} )*(?:anything|something|questions?|"
    r"concerns?|problems?|this|it|that|things?)(?: else| further| more)*(?: (?:is|are|was|were|be|remains?))? "
    r"(?:still |not )*(?:unclear|difficult|a worry|worrying)",
    r"(?:if|should) there (?:is|be) (?:anything|something)(?: else| further| more)*(?: that)?"
    r"(?: (?:we|i|our team) can (?:do(?: for you)?|help(?: you)?(?: with)?|assist(?: you)?(?: with)?|answer|explain)| "
    r"you (?:need|want|would like|wish)(?: (?:to (?:know|ask|tell us|say|explain)|from us))?)?",
    r"(?:anything|something)(?: else| further| more)* (?:that )?(?:we|i|our team) can (?:help(?: you)?(?: with)?|"
    r"assist(?: you)?(?: with)?|answer|explain|do for you)",
    r"(?:as|if) (?:needed|ever)",
    r"as well",
    r"as always",
    r"as ever",
    r"as (?:a|our|such a) (?:very |truly |so )*(?:loyal |valued |great |good |patient )*customer",
    rf"how (?:very |really |so |truly )*{HARD} (?:this|it|that|these things|the situation|this situation|things) "
    r"(?:must|has|have|may|can|could|would)(?: have)?(?: been| be| feel)?",
    rf"(?:must|may|could|might|has|have|had|would|can)(?: have)?(?: been| be| feel)(?: {VERY})* {HARD}"
    r"(?: (?:for you )?to have to (?:write to|contact|reach out to|ask) us(?: again)?(?: about (?:this|it))?)?",
    r"(?:this|it|that|we|they|these things|the situation|this situation)(?: all)? (?:has|have|had|may have|might have) "
    r"(?:caused|brought)(?: you)?",
    r"(?:that )?you (?:have )?had to (?:contact|write|reach|ask|message|deal|worry|explain)(?: out)?"
    r"(?: to| with| about)? (?:us|me|this|it)(?: again| about this)?",
    rf"you (?:have had|have|had) (?:{ANY} )*(?:very )?(?:{HARD} )?(?:experience|troubles?|problems?|concerns?|"
    r"inconvenience|worr(?:y|ies)|frustration)(?: with (?:us|it|this|your order|the order))?",
    r"(?:we|i|our team) (?:have|had) (?:also |all |truly )*(?:read|heard|looked(?: at| into)?|listened(?: to)?|"
    r"understood|written|wrote)",
    rf"(?:we|i) (?:have|had) (?:{ANY} )*questions?(?: for you| to ask(?: you)?| about (?:this|it|your order))?",
    r"you have (?:been (?:so |very |really |truly )*(?:patient|kind|understanding|helpful|clear|thoughtful)|written|"
    r"told us|shared(?: with us)?|asked(?: us)?|raised|contacted us|explained|brought (?:up|to us|to our attention))",
    r"(?:could|can|would|will) you (?:(?:please|kindly|also|just) )*(?:tell|explain to|help|share with|write to) "
    r"(?:us|me)(?: (?:know|understand|more|again))*",
    r"(?:could|can|would) you (?:(?:please|kindly|also|just) )*(?:let us know|explain|clarify|check|share(?:"
    r"(?: (?:any|some|more|further|other|your|the|these))+ (?:details?|thoughts|feedback|concerns?|experience))?)",
    r"(?:have|had) you (?:(?:also|ever|already) )*(?:contacted|written to|reached out to|told|asked) "
    r"(?:us|our team|anyone|someone)",
    r"(?:which|what)(?: orders?| one)? you (?:would like|want|wish|need) (?:us |our team |me )?to "
    r"(?:look at|look into|help with|explain|know|ask|tell us)",
    r"(?:what|anything|something) else (?:(?:should|can|could) (?:we|i)|(?:that )?(?:we|i) should) "
    r"(?:know|ask|look at|explain)",
    r"(?:we|i|our team) (?:would|will|could) (?:(?:very much|really|truly|also|always|just) )*(?:like to (?:thank|"
    r"apologi[sz]e|know|hear|help|understand|ask|say|tell you|explain)|love to (?:hear|help|know)|appreciate|"
    r"be (?:very |so |really |more than )*(?:happy|glad|grateful|pleased|thankful)(?: to (?:help|hear|assist|answer|"
    r"explain|know)| for| if)?)",
    r"it would (?:really |very much |also )*(?:help|be (?:good|helpful|of help|great) to (?:know|hear|understand))",
    r"(?:how|what) (?:can|could|may) (?:we|i) (?:do|help|assist|explain|answer)(?: (?:you|for you|further|else|with))*",
    rf"you can (?:(?:always|also|just|still) )*{CONTACT}(?: again)?(?! for)",
    r"(?:all|everything|whatever|what) (?:that )?(?:we|i) (?:can|could) (?:find|read|see|do(?: to help(?: you)?)?|"
    r"help(?: you)? with)(?: about (?:this|that|the|your) order)?",
    r"(?:best|well) (?:that )?we can",
    r"(?:we|i) (?:can|could) only say",
    r"(?:hope|hopes) (?:that )?(?:we|i) could help",
    r"(?:we|i) need (?:your help|to (?:ask(?: you)?|know|understand|hear))",
    r"needs? (?:any |some |further |more |additional )*(?:help|support|assistance|clarification)",
    r"(?:if )?you need anything(?: else| further| more)*(?: from us)?",
    r"(?:so )?(?:a person|someone|people|our team|a colleague) needs? to look at (?:it|this)",
    r"(?:this|it|that) should (?:help|explain|answer)",
    r"for (?:sharing|bringing) (?:this|that|it|these|your (?:concerns?|feedback|thoughts|experience)|the matter)"
    r"(?: (?:up|with us|to us|to our attention))?",
    r"shared? (?:(?:any|some|more|further|other|your|the|these) )+(?:details?|thoughts|feedback|concerns?|experience)"
    r"(?: with (?:us|me|you|our team))?",
    r"take a (?:good |close )?look(?: at (?:it|this|that|these|them|(?:the|these) details?))?",
    r"(?:what|everything|the details?) you (?:have )?shared(?: with us)?",
    r"when you (?:write|wrote|contacted|reached out|reached)(?: to)?(?: us)?(?: again)?",
    r"while (?:we|i) (?:look|looked|are looking|read|check)"
    r"(?: (?:at|into) (?:it|this|your request))?(?: for you)?",
    r"(?:we|i) can (?:(?:also|really|truly|well) )*(?:see|understand|imagine) (?:why|how)",
    r"if you need us",
    r"(?:we|i) (?:(?:truly|really|very much|deeply|also) )*value (?:you(?! \w+ order)|your (?:trust|patience|loyalty|"
    r"feedback|support|kindness|understanding|thoughts|honesty|relationship))",
    r"(?:we|i) wish you (?:all )?(?:the (?:very )?best|well)",
    r"wishing you (?:all )?(?:the (?:very )?best|well)",
    r"so (?:very )?(?:much|sorry|grateful|glad|happy|thankful|kind|patient)",
    rf"so {HARD}",
    r"please do so",
    r"so (?:that )?(?:we|our team) (?:understand|know|can (?:help|look|understand|assist))",
    r"once more",
    r"more than (?:happy|glad|grateful|welcome)",
    r"(?:any|some|no) more (?:questions?|details?|help)",
    r"(?:tell|hear|know|say|write|ask) (?:us |me )?(?:a lot |much )?more(?: about (?:it|this|your order))?",
    r"(?:hope|trust) (?:that )?you find (?:this|it|our answer|the answer) (?:helpful|of help)",
    r"something (?:is|was) unclear",
    r"something else",
    r"(?:we|i) want to (?:help|thank|understand|apologi[sz]e|know|hear)",
    r"we (?:do|did) everything we could to help",
    rf"(?:you have|have you) (?:{ANY} )*questions?(?: about (?:it|this))?",
    r"any (?:other |further )?questions? (?:that )?you (?:still |may )?have",
    r"is there anything else (?:that )?(?:we|i|our team) can (?:help|assist)(?: you)?(?: with)?",
    r"please accept our (?:sincere |sincerest )?apologies",
    r"(?:bear|bearing) with us",
    r"clears? (?:it|this|things|everything) up",
    r"mix up",
    r"in more detail",
    r"more than once",
    r"so (?:very )?clearly",
    r"you bringing (?:it|this|that) (?:up|to our attention)",
    r"you (?:told|asked|wrote to) us about (?:it|this)",
    r"(?:we|i) take (?:it|this|that|your (?:concerns?|feedback|message)) (?:very )?seriously",
    r"how (?:we|i) can help(?: you)?(?: further)?",
    r"if (?:you|anyone) (?:still )?(?:have|has) (?:any )?doubts?",
    r"when something like this happens",
    r"(?:a colleague|our team) (?:would|will) be (?:glad|happy|pleased) to (?:help|explain|answer|hear|talk to you|"
    r"listen)",
    r"(?:please )?(?:find|see) the details above",
    r"here is what we found",
)
