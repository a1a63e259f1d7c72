/* SPDX-License-Identifier: MIT
 *
 * For programs that mark their own region of interest, with `--roi marker`:
 *     #include "roi.h"
 *     PTT_ROI_BEGIN(); ... PTT_ROI_END();
 * Two system calls that no kernel has (they return -ENOSYS at once when the program is not traced).
 */
#ifndef PTT_ROI_H
#define PTT_ROI_H

#define PTT_ROI_BEGIN_CALL 0x50545401
#define PTT_ROI_END_CALL 0x50545402

#define PTT_ROI_MARK(number)                                                                                  \
    do {                                                                                                      \
        long ptt_result;                                                                                      \
        __asm__ volatile("syscall" : "=a"(ptt_result) : "a"((long)(number)) : "rcx", "r11", "memory");        \
    } while (0)
#define PTT_ROI_BEGIN() PTT_ROI_MARK(PTT_ROI_BEGIN_CALL)
#define PTT_ROI_END() PTT_ROI_MARK(PTT_ROI_END_CALL)

#endif
