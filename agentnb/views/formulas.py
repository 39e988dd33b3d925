r"""Which formulas of an answer are handed to the typesetter, and where they end.

A page has one MathJax for all that it shows. A command that defines changes the formulas of the
person, too; one that styles reaches beyond its formula; and what is nested deeply takes it so
long that the page hangs, at each opening of the notebook again. So a formula counts when every
command in it is on a list of those that only draw, and when it is neither long nor deep. The list
is what textbooks use of TeX, AMS and a little of mathtools; what is not on it is text.
"""

from __future__ import annotations

import re

MOST_LENGTH = 4_000
"""Characters of one formula."""

MOST_DEPTH = 12
"""Braces, environments, `\\left` and formulas within text, one in the other. At 20 MathJax needs no
longer than for the same formulas beside each other; at 100 the page crashes."""

_MOST_DEPTH_OF_ARROW = 3
"""What stands above an arrow is measured twice, so that each level takes twice as long."""

MOST_CELLS = 1_000
"""Of all tables of a formula; MathJax fills each row to the width of the widest."""

_GREEK = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu
    nu xi omicron pi varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega digamma
    Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    varGamma varDelta varTheta varLambda varXi varPi varSigma varUpsilon varPhi varPsi varOmega
"""
_LETTERS = """
    aleph beth gimel daleth hbar hslash ell wp Re Im Bbbk partial nabla infty imath jmath eth mho
    complement Finv Game emptyset varnothing forall exists nexists angle measuredangle
    sphericalangle backprime prime degree surd top bot bigstar blacksquare square Box Diamond
    lozenge blacklozenge triangle triangledown blacktriangle blacktriangledown diamondsuit
    clubsuit heartsuit spadesuit flat natural sharp checkmark dagger ddagger yen S
    circledR circledS maltese diagup diagdown
"""
_OPERATORS = """
    pm mp times div cdot ast star circ bullet cap cup uplus sqcap sqcup vee lor wedge land lnot neg
    not setminus smallsetminus wr diamond bigtriangleup bigtriangledown triangleleft triangleright
    oplus ominus otimes oslash odot bigcirc amalg centerdot dotplus Cap Cup doublecap doublecup
    barwedge veebar doublebarwedge boxminus boxtimes boxdot boxplus divideontimes ltimes rtimes
    leftthreetimes rightthreetimes curlywedge curlyvee circleddash circledast circledcirc intercal
    lhd rhd unlhd unrhd
    sum prod coprod int iint iiint iiiint idotsint oint smallint intop bigcap bigcup bigsqcup
    bigvee bigwedge bigodot bigotimes bigoplus biguplus
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth exp log ln lg lim limsup
    liminf varlimsup varliminf varinjlim varprojlim injlim projlim max min sup inf arg det dim deg
    gcd hom ker Pr bmod pmod mod pod limits nolimits operatorname
"""
_RELATIONS = """
    lt gt le leq ge geq leqq geqq leqslant geqslant eqslantless eqslantgtr lesssim gtrsim
    lessapprox gtrapprox approxeq lessdot gtrdot lll ggg llless gggtr lessgtr gtrless lesseqgtr
    gtreqless lesseqqgtr gtreqqless ne neq equiv sim simeq approx cong propto asymp doteq doteqdot
    Doteq risingdotseq fallingdotseq backsim backsimeq thicksim thickapprox bumpeq Bumpeq eqcirc
    circeq triangleq prec succ preceq succeq preccurlyeq succcurlyeq curlyeqprec curlyeqsucc
    precsim succsim precapprox succapprox precneqq succneqq precnsim succnsim precnapprox
    succnapprox ll gg subset supset subseteq supseteq subseteqq supseteqq Subset Supset subsetneq
    supsetneq subsetneqq supsetneqq varsubsetneq varsupsetneq nsubseteq nsupseteq nsubseteqq
    nsupseteqq sqsubset sqsupset sqsubseteq sqsupseteq in ni owns notin vdash dashv models vDash
    Vdash Vvdash nvdash nvDash nVdash nVDash perp parallel nparallel shortparallel nshortparallel
    mid nmid shortmid nshortmid bowtie Join smile frown smallsmile smallfrown between pitchfork
    backepsilon varpropto therefore because vartriangle vartriangleleft vartriangleright
    trianglelefteq trianglerighteq ntriangleleft ntriangleright ntrianglelefteq ntrianglerighteq
    blacktriangleleft blacktriangleright nless ngtr nleq ngeq nleqq ngeqq nleqslant ngeqslant lneq
    gneq lneqq gneqq lnsim gnsim lnapprox gnapprox lvertneqq gvertneqq nprec nsucc npreceq nsucceq
    nsim ncong coloneqq Coloneqq coloneq eqqcolon dblcolon colon
"""
_ARROWS = """
    to gets leftarrow rightarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow uparrow
    downarrow updownarrow Uparrow Downarrow Updownarrow longleftarrow longrightarrow
    longleftrightarrow Longleftarrow Longrightarrow Longleftrightarrow implies impliedby iff mapsto
    longmapsto hookleftarrow hookrightarrow leftharpoonup leftharpoondown rightharpoonup
    rightharpoondown rightleftharpoons leftrightharpoons nearrow searrow swarrow nwarrow leadsto
    rightsquigarrow leftrightsquigarrow twoheadrightarrow twoheadleftarrow rightarrowtail
    leftarrowtail leftleftarrows rightrightarrows leftrightarrows rightleftarrows upuparrows
    downdownarrows upharpoonleft upharpoonright downharpoonleft downharpoonright restriction
    curvearrowleft curvearrowright circlearrowleft circlearrowright looparrowleft looparrowright
    Lsh Rsh Lleftarrow Rrightarrow dashleftarrow dashrightarrow multimap nleftarrow nrightarrow
    nleftrightarrow nLeftarrow nRightarrow nLeftrightarrow
"""
_LONG_ARROWS = frozenset(
    "xleftarrow xrightarrow xleftrightarrow xLeftarrow xRightarrow xLeftrightarrow xmapsto".split()
)
"""They are as long as what stands above them."""
_BUILT = """
    frac dfrac tfrac cfrac binom dbinom tbinom sqrt root of over atop choose brace brack
    hat widehat check tilde widetilde bar overline underline acute grave breve vec dot
    ddot dddot ddddot mathring overrightarrow overleftarrow overleftrightarrow underrightarrow
    underleftarrow underleftrightarrow overbrace underbrace overset underset stackrel substack
    sideset overparen underparen boxed cancel bcancel xcancel phantom hphantom vphantom smash
    mathclap mathllap mathrlap mathop mathbin mathrel mathord mathopen mathclose mathpunct
    mathinner bra ket braket
"""
_FONTS = """
    mathbb mathbf mathcal mathfrak mathit mathnormal mathrm mathscr mathsf mathtt boldsymbol
    pmb rm bf it cal sf tt frak scr Bbb
    displaystyle textstyle scriptstyle scriptscriptstyle tiny small normalsize large Large
"""
_SPACING = """
    quad qquad enspace thinspace negthinspace negmedspace negthickspace
    space nobreakspace hspace cr hline hdashline nonumber notag
    dots ldots cdots vdots ddots dotsc dotsb dotsm dotsi dotso
"""
_FENCES = """
    left middle right big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm
    Biggm langle rangle lfloor rfloor lceil rceil lvert rvert lVert rVert vert Vert lbrace rbrace
    lbrack rbrack lgroup rgroup lmoustache rmoustache ulcorner urcorner llcorner lrcorner backslash
    arrowvert Arrowvert bracevert
"""
_WITH_TEXT = frozenset(
    "text textrm textbf textit textsf texttt textup textnormal mbox hbox tag".split()
)
"""Their argument is text: `$` begins a formula in it."""

COMMANDS = (
    frozenset(
        f"{_GREEK} {_LETTERS} {_OPERATORS} {_RELATIONS} {_ARROWS} {_BUILT} {_FONTS} {_SPACING} "
        f"{_FENCES}".split()
    )
    | _WITH_TEXT
    | _LONG_ARROWS
)
"""Names of letters; none of them defines, styles, fetches, or leads somewhere."""

_SIGNS = frozenset(",;:!>{}|_$&#%\\ \n\t")
"""What may follow a backslash where no letter does."""

ENVIRONMENTS = frozenset(
    """
    matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array subarray cases dcases rcases
    aligned alignedat gathered split align align* alignat alignat* gather gather* equation
    equation* multline multline* eqnarray eqnarray* flalign flalign*
    """.split()
)

_LENGTH = r"-?(?:\d?(?:\.\d+)?\s*(?:em|ex|cm|in)|\d{0,2}(?:\.\d+)?\s*(?:pt|px|mm|mu))"
"""A length that moves nothing out of its place."""

# What stands behind a name, where that could make much out of little.
_LENGTH_IN_BRACES = re.compile(rf"\s*\{{{_LENGTH}\}}")
_BEHIND_ROW = re.compile(rf"\*?\[{_LENGTH}\]|\*?+(?!\[)")
_BEHIND = {
    "array": re.compile(r"\s*(?:\[[tcb]\])?\s*\{(?:[lcr|: ]|@\{\}){1,60}\}"),
    "subarray": re.compile(r"\s*\{[lcr]\}"),
    **dict.fromkeys(("alignedat", "alignat", "alignat*"), re.compile(r"\s*\{\d\d?\}")),
}

_TOKEN = re.compile(
    r"\\(?P<edge>begin|end)\{(?P<name>[A-Za-z]+\*?)\}"
    r"|\\(?P<command>[A-Za-z]+)"
    r"|\\(?P<sign>.)"
    r"|(?P<mark>[{}$%&])"
    r"|\\\Z",
    re.DOTALL,
)

# Some readers of TeX pass over blanks behind a backslash.
_ACTING = frozenset(
    """
    style class cssId href url bbox require data html includegraphics rule Rule Space def edef gdef
    xdef let futurelet newcommand renewcommand providecommand newenvironment renewenvironment csname
    unicode mmlToken color textcolor colorbox fcolorbox definecolor enclose texttip mathtip toggle
    """.split()
)
_WORD = re.compile(r"\s*([A-Za-z]+)")


def is_known(formula: str) -> bool:
    r"""Whether a formula holds nothing but what only draws, and ends where it seems to end.

    Args:
        formula: With its delimiters: `$…$`, `$$…$$`, `\(…\)`, `\[…\]` or `\begin{…}…\end{…}`.
    """
    if len(formula) > MOST_LENGTH:
        return False
    if formula.startswith("\\begin"):
        return _Reader(formula).only_draws()
    edge = 1 if formula[0] == "$" and not formula.startswith("$$") else 2
    return _Reader(formula[edge:-edge]).only_draws()


class _Reader:
    """Reads one formula. Its methods say whether what they read may stand there.

    Args:
        source: The formula, without delimiters.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._open: list[str] = []
        """What has to be closed: environments by name, `left`, `{`, a brace of `text`, and `$`."""
        self._opens_text = False
        """Whether a brace that stands here begins a text."""
        self._tables: list[_Table] = []
        self._cells = 0

    def only_draws(self) -> bool:
        """Whether every command is a known one, and all that is opened is closed again."""
        while token := _TOKEN.search(self._source, self._at):
            if self._opens_text and self._source[self._at : token.start()].strip():
                self._opens_text = False
            self._at = token.end()
            if not self._may_stand(token) or len(self._open) > MOST_DEPTH:
                return False
            self._opens_text = token["command"] in _WITH_TEXT
        return not self._open

    def _may_stand(self, token: re.Match[str]) -> bool:
        match token.lastgroup:
            case "command":
                return self._command(token["command"])
            case "name" if token["edge"] == "begin":
                return self._begin(token["name"])
            case "name":
                return self._close(token["name"]) and self._count(self._tables.pop().cells)
            case "sign":
                return self._sign(token["sign"])
            case "mark":
                return self._mark(token["mark"])
        return False  # a backslash at the end: it would take the delimiter with it

    def _command(self, command: str) -> bool:
        if command == "left":
            self._open.append(command)
        elif command == "right":
            return self._close("left")
        elif command == "hspace":
            return self._is_followed_by(_LENGTH_IN_BRACES)
        elif command == "cr":
            self._end_row()
        elif command in _LONG_ARROWS:
            return len(self._open) <= _MOST_DEPTH_OF_ARROW
        return command in COMMANDS

    def _begin(self, name: str) -> bool:
        self._open.append(name)
        self._tables.append(_Table())
        return name in ENVIRONMENTS and self._is_followed_by(_BEHIND.get(name))

    def _sign(self, sign: str) -> bool:
        if sign == "\\":
            self._end_row()
            return self._is_followed_by(_BEHIND_ROW)
        if sign.isspace():
            word = _WORD.match(self._source, self._at)
            return sign in _SIGNS and (word is None or word[1] not in _ACTING)
        return sign in _SIGNS

    def _mark(self, mark: str) -> bool:
        match mark:
            case "{":
                self._open.append("text" if self._opens_text else mark)
            case "}":
                return self._close("{", "text")
            case "&" if self._tables:
                self._tables[-1].here += 1
            case "&":
                pass
            case "$" if self._open and self._open[-1] == "$":
                self._open.pop()
            case "$" if self._open and self._open[-1] == "text":
                self._open.append(mark)
            case _:  # a dollar elsewhere ends the formula, and `%` hides the rest of its line
                return False
        return True

    def _close(self, *kinds: str) -> bool:
        return bool(self._open) and self._open.pop() in kinds

    def _is_followed_by(self, what: re.Pattern[str] | None) -> bool:
        if what is None:
            return True
        found = what.match(self._source, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True

    def _end_row(self) -> None:
        if self._tables:
            self._tables[-1].end_row()

    def _count(self, cells: int) -> bool:
        self._cells += cells
        return self._cells <= MOST_CELLS


class _Table:
    """How large an environment becomes."""

    def __init__(self) -> None:
        self.here = 1
        """Cells of the row that is read."""
        self._rows = 0
        self._widest = 1

    def end_row(self) -> None:
        self._rows += 1
        self._widest = max(self._widest, self.here)
        self.here = 1

    @property
    def cells(self) -> int:
        return (self._rows + 1) * max(self._widest, self.here)


# -- where formulas are ----------------------------------------------------------------------------

START = re.compile(r"\$\$?|\\\\?[(\[]|\\begin\{[A-Za-z]+\*?\}")
"""What opens a formula, in the ways of MathJax and in those of JupyterLab's own Markdown."""

_MOST_CLOSERS = 64
"""Different names of environments of one text; what comes after them is no formula."""


class Closers:
    """Where the formulas of one text end. All questions together cost a walk or two through it.

    Args:
        source: The text.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        # By closer: from where on it was looked for, and where it is; -1 for nowhere.
        self._next: dict[str, tuple[int, int]] = {}

    def end_of(self, start: re.Match[str], stop: int) -> int | None:
        """The place behind the formula that begins there; `None` where it does not end.

        Args:
            start: The opener, a match of `START`.
            stop: Where the text ends for it.
        """
        closer = _closer_of(start[0])
        # A formula has at least one character.
        found = self._find(closer, start.end() + 1)
        end = found + len(closer)
        if found < 0 or end > stop or end - start.start() > MOST_LENGTH + 2:
            return None
        return end

    def _find(self, closer: str, begin: int) -> int:
        searched, found = self._next.get(closer, (-1, -1))
        if searched < 0 and len(self._next) >= _MOST_CLOSERS:
            return -1
        if searched < 0 or begin < searched or (0 <= found < begin):
            found = self.source.find(closer, begin)
            self._next[closer] = begin, found
        return found


def _closer_of(opener: str) -> str:
    if opener.startswith("$"):
        return opener
    if opener.endswith("}"):
        return opener.replace("begin", "end", 1)
    return opener.replace("(", ")").replace("[", "]")
