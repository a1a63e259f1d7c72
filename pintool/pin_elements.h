/* SPDX-License-Identifier: MIT
 *
 * Operands under a mask. Gathers and scatters: one instruction, many addresses. Kits from about 3.20 on describe them as operands of elements
 * (IARG_MULTI_ELEMENT_OPERAND; pin.mk looks whether the kit has it), older ones as a list of accesses.
 */
#ifndef PTT_PIN_ELEMENTS_H
#define PTT_PIN_ELEMENTS_H

#include "pin.H"

#ifdef PTT_PIN_ELEMENTS

typedef const IMULTI_ELEMENT_OPERAND pin_elements;

/* access(address, bytes, store) for each element that the mask lets through. */
template <class F> static inline VOID each_element(pin_elements *all, F access) {
    for (UINT32 i = 0; i < all->NumOfElements(); i++)
        if (all->ElementMaskValue(i))
            access(all->ElementAddress(i), (UINT32)all->ElementSize(i),
                   all->ElementAccessType(i) == PIN_OP_ELEMENT_ACCESS_READ ? 0u : 1u);
}

/* Before the instruction: function(register, pin_elements *). */
static inline VOID call_with_elements(INS ins, AFUNPTR function, REG claimed) {
    for (UINT32 operand = 0; operand < INS_OperandCount(ins); operand++)
        if (INS_OperandIsMemory(ins, operand))
            INS_InsertPredicatedCall(ins, IPOINT_BEFORE, function, IARG_REG_VALUE, claimed, IARG_MULTI_ELEMENT_OPERAND,
                                     operand, IARG_END);
}

/* Whether a mask decides if the operand is accessed (IARG_MEMORYOP_MASKED_ON). */
static inline bool is_masked(INS ins, UINT32) { return REG_valid(INS_MaskRegister(ins)) || INS_IsMaskMov(ins); }

#else

typedef const PIN_MULTI_MEM_ACCESS_INFO pin_elements;

template <class F> static inline VOID each_element(pin_elements *all, F access) {
    for (UINT32 i = 0; i < all->numberOfMemops; i++)
        if (all->memop[i].maskOn)
            access(all->memop[i].memoryAddress, all->memop[i].bytesAccessed,
                   all->memop[i].memopType == PIN_MEMOP_STORE ? 1u : 0u);
}

static inline VOID call_with_elements(INS ins, AFUNPTR function, REG claimed) {
    INS_InsertPredicatedCall(ins, IPOINT_BEFORE, function, IARG_REG_VALUE, claimed, IARG_MULTI_MEMORYACCESS_EA,
                             IARG_END);
}

/* These kits do not name masks: vectors may have one. */
static inline bool is_masked(INS ins, UINT32 operand) {
    return INS_MemoryOperandSize(ins, operand) >= 16 || INS_IsMaskMov(ins);
}

#endif
#endif
