/* SPDX-License-Identifier: MIT */
/* What we may do is given up, for good, as soon as no step that follows needs it. */
#ifndef PRIVILEGES_H
#define PRIVILEGES_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>

#define CAN(capability) (1ULL << (capability))

void require_capabilities(void);
bool have_capability(int number);
/* Uses only these from now on, of those that we hold: access() then says what they allow. */
void use_capabilities(uint64_t wanted);
/* Gives up all others for good, also for what we might execute. */
void keep_capabilities(uint64_t wanted);

#endif
