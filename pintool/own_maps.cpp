/* SPDX-License-Identifier: MIT */
#include "own_maps.h"

#include <linux/errno.h>
#include <linux/fcntl.h>

#include "kernel.h"
#include "writer.h"

/* Field of a line that the reader is in: addresses, then up to the name, then a name. */
struct map_line {
    enum { START, END, OTHER, NAME } in;
    uint64_t start, end;
    bool kernels;
};

struct range {
    uint64_t start, end;
};

static void note(const range &one) {
    if (one.end > one.start) ptt_record_event(NULL, PTT_TRACER_MAP, one.start, one.end - one.start, 0, 0, 0);
}

static void take(range *open, const map_line &line, bool kernels_too) {
    if (line.end <= line.start || (line.kernels && !kernels_too)) return;
    if (line.start == open->end) {
        open->end = line.end;
        return;
    }
    note(*open);
    *open = {line.start, line.end};
}

static uint64_t digit(char letter) { return (uint64_t)(letter <= '9' ? letter - '0' : letter - 'a' + 10); }

static void read_letter(map_line *line, char letter) {
    bool hexadecimal = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
    if (line->in == map_line::START && hexadecimal)
        line->start = line->start << 4 | digit(letter);
    else if (line->in == map_line::START)
        line->in = map_line::END;
    else if (line->in == map_line::END && hexadecimal)
        line->end = line->end << 4 | digit(letter);
    else if (line->in == map_line::END)
        line->in = map_line::OTHER;
    else if (line->in == map_line::OTHER && (letter == '/' || letter == '[')) {
        line->in = map_line::NAME;
        line->kernels = letter == '[';
    }
}

void record_own_maps(int kernels_too) {
    char text[1024];
    map_line line = {};
    range open = {};
    long fd = kernel_call(__NR_open, "/proc/self/maps", O_RDONLY | O_CLOEXEC), bytes = 0;
    while (fd >= 0 && ((bytes = kernel_call(__NR_read, fd, text, sizeof text)) > 0 || bytes == -EINTR))
        for (long i = 0; i < bytes; i++) {
            if (text[i] != '\n') {
                read_letter(&line, text[i]);
                continue;
            }
            take(&open, line, kernels_too);
            line = {};
        }
    note(open);
    if (fd >= 0) kernel_call(__NR_close, fd);
}
