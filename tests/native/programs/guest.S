/* A guest that turns on 64-bit paging over tables known to the last entry, and halts. Multiboot, loaded at 1 MiB.
 * User half: 2 MiB identity, three 4 KiB pages, a self-map, a shared table, a table beyond memory. */
	.set MAGIC, 0x1BADB002
	.section .header, "a"
	.long MAGIC, 0, -MAGIC

	.section .text
	.code32
	.global _start
_start:
	cli
	mov	$root, %eax
	mov	%eax, %cr3
	mov	%cr4, %eax
#ifdef LA57
	or	$0x1020, %eax	/* PAE, LA57 */
#else
	or	$0x20, %eax	/* PAE */
#endif
	mov	%eax, %cr4
	mov	$0xC0000080, %ecx
	rdmsr
	or	$0x100, %eax	/* EFER.LME */
	wrmsr
	mov	%cr0, %eax
	or	$0x80000000, %eax
	mov	%eax, %cr0
1:	hlt
	jmp	1b

	.section .tables, "aw"
#ifdef LA57
	.balign	4096
	.global	root
root:	.long	pml4 + 0x67, 0
	.fill	511, 8, 0
#endif
	.global	pml4
pml4:
#ifndef LA57
	.global	root
root:
#endif
	.long	pdpt + 0x67, 0
	.fill	9, 8, 0
	.long	pml4 + 0x67, 0		/* 10: itself */
	.long	pdpt + 0x67, 0		/* 11: shared */
	.long	0x34567067, 0x12	/* 12: beyond memory */
	.fill	287, 8, 0
	.long	pdpt + 0x67, 0		/* 300: the kernel's half */
	.fill	211, 8, 0
	.global	pdpt
pdpt:	.long	pd + 0x67, 0
	.fill	511, 8, 0
	.global	pd
pd:	.long	0xE7, 0			/* 2 MiB at 0 */
	.long	pt + 0x67, 0
	.fill	510, 8, 0
	.global	pt
pt:	.long	0x200067, 0
	.fill	6, 8, 0
	.long	0x207067, 0
	.fill	503, 8, 0
	.long	0x3FF067, 0
