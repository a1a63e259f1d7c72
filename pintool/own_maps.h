/* SPDX-License-Identifier: MIT
 *
 * What the tracer itself has mapped when it begins, so that it is never taken for the program's.
 */
#ifndef PTT_OWN_MAPS_H
#define PTT_OWN_MAPS_H

/* Notes each range of /proc/self/maps as PTT_TRACER_MAP. `kernels_too`: also what the kernel gave the process, which has
 * a name in brackets ([stack], [heap], [vdso]). */
void record_own_maps(int kernels_too);

#endif
