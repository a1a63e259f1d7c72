"""Memory that does not grow, folded: a dictionary of pages, line by line."""


def naive_fold(touched, fixed, factor):
    """{page: page that is seen in its place} of the `fixed` pages of lines of eight with a touched page.

    touched  page numbers; fixed: a range of them
    """
    lines = sorted({page // 8 for page in touched if any(8 * (page // 8) + k in fixed for k in range(8))})
    kept = max(round(len(lines) / factor), 1)
    return {
        8 * line + k: 8 * lines[number % kept] + k
        for number, line in enumerate(lines)
        for k in range(8)
        if 8 * line + k in fixed
    }
