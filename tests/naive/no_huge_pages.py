"""Memory that a program forbids huge pages or asks them for, page by page, as Linux marks its VMAs."""

from ptanalyze.core.trace import Event

PAGE = 4096
ENOMEM = -12
HUGE, NO_HUGE, COLLAPSE = 14, 15, 25  # MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE
DONTNEED, FREE, REMOVE = 4, 8, 9
MARKS = {
    "forbidden": ({NO_HUGE}, {HUGE}),
    "asked": ({HUGE}, {NO_HUGE}),
    "collapsed": ({COLLAPSE}, {DONTNEED, FREE, REMOVE}),
}


def pages_of(start, length):
    return range(start // PAGE, -(-(start + length) // PAGE))


def marked_pages(events, mark):
    """Numbers of the pages whose VMA carries VM_NOHUGEPAGE, or did when it was unmapped; other MARKS alike.

    hugepage_madvise (mm/khugepaged.c, Linux 6.12) sets and clears the flag; a new VMA is without; mremap
    (mm/mremap.c) gives the moved or grown VMA the flags of the old one.
    """
    (sets, clears), marked, brk = MARKS[mark], set(), None
    for event in events:
        kind, result = event["kind"], int(event["result"])
        a, b, c = (int(event[name]) for name in "abc")
        if kind == Event.MADVISE and result in (0, ENOMEM) and c in sets:
            marked.update(pages_of(a, b))
        elif kind == Event.MADVISE and result in (0, ENOMEM) and c in clears:
            marked.difference_update(pages_of(a, b))
        elif kind == Event.MMAP and result > 0:
            marked.difference_update(pages_of(result, b))
        elif kind == Event.BRK and result > 0:
            if brk is not None and result > brk:
                marked.difference_update(range(-(-brk // PAGE), -(-result // PAGE)))
            brk = result
        elif kind == Event.MREMAP and result > 0 and b:
            old = [page in marked for page in pages_of(a, b)]
            new = pages_of(result, c)
            flags = (old + old[-1:] * len(new))[: len(new)]
            marked.difference_update(new)
            marked.update(page for page, flag in zip(new, flags, strict=True) if flag)
    return marked
