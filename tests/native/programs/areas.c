// What dumps/proc.c reads of the text on standard input: a line for each area, then the text that is left.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "proc.h"

int main(void) {
    size_t used = 0, room = 1 << 20;
    char *text = malloc(room);
    const char *at = text;
    struct mapping area;
    ssize_t got;
    while ((got = read(0, text + used, room - 1 - used)) > 0) used += got;
    text = realloc(text, used + 1);
    text[used] = 0;
    for (at = text; next_mapping(&at, &area);)
        printf("%lx-%lx %s %lu %lu %lu %d %s\n", area.start, area.end, area.rights, area.inode, area.resident, area.huge,
               mapping_has(&area, "pf"), area.name);
    printf("left: %s\n", at);
    free(text);
}
