"""Finding tables by (level, base) in dicts."""


def tables_by_base(tree):
    return {
        (int(level), int(base)): table
        for table, (level, base) in enumerate(zip(tree.level, tree.base, strict=True))
    }
