/* stuck FILE: a session whose lock stays with nobody. */
#include <cstdio>

#include "../../../pintool/kernel.h"
#include "../../../pintool/writer.h"

int main(int, char **arguments) {
    struct ptt_options options = {};
    snprintf(options.path, sizeof options.path, "%s", arguments[1]);
    options.recording = 1;
    if (ptt_open(&options)) return 1;
    struct ptt_thread *thread = ptt_thread_start(0);
    ptt_push(thread, 1, 0);
    ptt_flush(thread, 0);
    ptt_session->file_lock = 1;
    for (int i = 0; i < 100; i++) ptt_record_event(nullptr, PTT_MUNMAP, 4096, 4096, 0, 0, 0);
    ptt_finish(PTT_EXIT);
}
