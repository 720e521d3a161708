"""Names that C, C++ and their libraries take: no variable or function of a kernel has one.

C11 7.1.3 and 7.31 reserve them. Rules stand for whole families; words of lower case that follow no
rule are listed, with the macros that GCC and Clang define without being asked.
"""

from __future__ import annotations

import re

_LANGUAGES = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long main mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual
    void volatile wchar_t while xor xor_eq
    arm i386 linux mips near far hpux sparc sun unix vax
"""

_LIBRARY = """
    assert errno
    complex imaginary
    isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
    tolower toupper
    feclearexcept fegetenv fegetexceptflag fegetround feholdexcept fenv_t feraiseexcept fesetenv
    fesetexceptflag fesetround fetestexcept feupdateenv fexcept_t
    imaxabs imaxdiv imaxdiv_t strtoimax strtoumax wcstoimax wcstoumax
    lconv localeconv setlocale
    double_t float_t fpclassify isfinite isgreater isgreaterequal isinf isless islessequal
    islessgreater isnan isnormal isunordered math_errhandling signbit signgam
    gamma j0 j1 jn y0 y1 yn
    jmp_buf longjmp setjmp
    raise sig_atomic_t signal
    va_arg va_copy va_end va_list va_start
    kill_dependency
    max_align_t offsetof ptrdiff_t size_t
    clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fpos_t fprintf fputc fputs fread
    freopen fscanf fseek fsetpos ftell fwrite getc getchar gets perror printf putc putchar puts
    remove rename rewind scanf setbuf setvbuf snprintf sprintf sscanf stderr stdin stdout tmpfile
    tmpnam ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf
    L_ctermid L_cuserid L_tmpnam P_tmpdir
    abort abs aligned_alloc alloca at_quick_exit atexit atof atoi atol atoll bsearch calloc div
    div_t exit free getenv labs ldiv ldiv_t llabs lldiv lldiv_t malloc mblen mbstowcs mbtowc qsort
    quick_exit rand realloc srand strtod strtof strtol strtold strtoll strtoul strtoull system
    wcstombs wctomb
    noreturn
    memchr memcmp memcpy memmove memset strcat strchr strcmp strcoll strcpy strcspn strerror strlen
    strncat strncmp strncpy strpbrk strrchr strspn strstr strtok strxfrm index rindex
    call_once once_flag
    asctime clock clock_t ctime difftime gmtime localtime mktime strftime time time_t timespec
    timespec_get tm
    c16rtomb c32rtomb mbrtoc16 mbrtoc32 mbstate_t
    btowc fgetwc fgetws fputwc fputws fwide fwprintf fwscanf getwc getwchar mbrlen mbrtowc mbsinit
    mbsrtowcs putwc putwchar swprintf swscanf ungetwc vfwprintf vfwscanf vswprintf vswscanf vwprintf
    vwscanf wcrtomb wcscat wcschr wcscmp wcscoll wcscpy wcscspn wcsftime wcslen wcsncat wcsncmp
    wcsncpy wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstok wcstol wcstold wcstoll
    wcstoul wcstoull wcsxfrm wctob wint_t wmemchr wmemcmp wmemcpy wmemmove wmemset wprintf wscanf
    iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct
    iswspace iswupper iswxdigit towctrans towlower towupper wctrans wctrans_t wctype wctype_t
"""
"""By header, in the order of C11's chapter 7."""

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs
    fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2
    logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round
    scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
    cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj
    creal csin csinh csqrt ctan ctanh
"""
"""Functions of `double`; those of `float` and `long double` end in f and l."""

_MATH_MACROS = "INFINITY NAN HUGE_VAL HUGE_VALF isfinite isinf isnan isnormal fpclassify signbit"

_OF_MATH = frozenset(
    [*(f + e for f in _MATH.split() for e in ("", "f", "l")), *_MATH_MACROS.split()]
)

_OWN = "chip packed status"
"""What the functions around a kernel call their own variables."""

_WORDS = _OF_MATH.union(f"{_LANGUAGES} {_LIBRARY} {_OWN}".split())

_FAMILIES = re.compile(
    r"I|[A-Z][A-Z0-9_]*[A-Z0-9]"  # macros: NAN, SIZE_MAX, EXIT_FAILURE, INT64_C, E2BIG, SIGINT
    r"|(?:PRI|SCN)[diouxX]\w*"
    r"|M_[A-Z0-9_]+(?:f|l|f\d+x?)"
    r"|u?int\w*_t"
    r"|(?:atomic|memory|cnd|mtx|thrd|tss)_[a-z]\w*"
)
"""Families of names; none of a library's ends in an underscore."""

_DIRECTIVE = r"^\s*#(?:\\\n|[^\n])*"
_SKIPPED = re.compile(
    rf'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|{_DIRECTIVE}', re.DOTALL | re.MULTILINE
)


def code_alone(text: str) -> str:
    """C text without comments and directives, its strings emptied."""
    return _SKIPPED.sub(lambda found: '""' if found[0][0] == '"' else " ", text)


def uses_math(text: str) -> bool:
    """Whether C text names what <math.h> declares."""
    return not _OF_MATH.isdisjoint(re.findall(r"[A-Za-z_]\w*", code_alone(text)))


def is_taken(name: str) -> bool:
    """Whether C, C++ or a library of theirs has the name."""
    if name.endswith("_"):
        return False
    return name in _WORDS or _FAMILIES.fullmatch(name) is not None
