/* SPDX-License-Identifier: MIT */
/* A guest that writes toucher.c's magic value at every multiple of STEP from 16 MiB on that is memory (the multiboot
 * memory map), says "R" on port 0xe9 and halts. 64-bit paging, 8 GiB mapped 1:1 by 2 MiB. Multiboot, loaded at 1 MiB. */
	.set MAGIC, 0x1BADB002
	.set STEP, 0x101000
	.section .header, "a"
	.long MAGIC, 2, -(MAGIC + 2)

	.section .text
	.code32
	.global _start
_start:
	cli
	mov	%ebx, %esi
	xor	%ecx, %ecx
1:	mov	%ecx, %eax	/* entry ecx of the directories: ecx * 2 MiB */
	shl	$21, %eax
	or	$0x83, %eax
	mov	%eax, directories(,%ecx,8)
	mov	%ecx, %eax
	shr	$11, %eax
	mov	%eax, directories + 4(,%ecx,8)
	inc	%ecx
	cmp	$4096, %ecx
	jb	1b
	mov	$root, %eax
	mov	%eax, %cr3
	mov	%cr4, %eax
	or	$0x20, %eax	/* PAE */
	mov	%eax, %cr4
	mov	$0xC0000080, %ecx
	rdmsr
	or	$0x100, %eax	/* EFER.LME */
	wrmsr
	mov	%cr0, %eax
	or	$0x80000000, %eax
	mov	%eax, %cr0
	lgdt	gdtr
	ljmp	$8, $long_mode

	.code64
long_mode:
	mov	44(%rsi), %r8d	/* mmap_length, mmap_addr of the multiboot information */
	mov	48(%rsi), %r9d
	add	%r9, %r8
	mov	$0x5ea1d00dc0de0000, %r10
	mov	$0x9e3779b97f4a7c15, %r11
entry:	cmp	%r8, %r9
	jae	done
	cmpl	$1, 20(%r9)
	jne	next
	mov	4(%r9), %rbx
	mov	12(%r9), %rcx
	add	%rbx, %rcx
	mov	$16 * STEP, %rdi
touch:	cmp	%rcx, %rdi
	jae	next
	cmp	%rbx, %rdi
	jb	2f
	mov	%rdi, %rax
	imul	%r11, %rax
	xor	%r10, %rax
	mov	%rax, (%rdi)
2:	add	$STEP, %rdi
	jmp	touch
next:	mov	(%r9), %eax
	lea	4(%r9,%rax), %r9
	jmp	entry
done:	mov	$0x52, %al
	out	%al, $0xe9
3:	hlt
	jmp	3b

	.section .tables, "aw"
	.balign	4096
root:	.long	pointers + 0x3, 0
	.fill	511, 8, 0
pointers:
	.set	at, 0
	.rept	8
	.long	directories + at * 4096 + 0x3, 0
	.set	at, at + 1
	.endr
	.fill	504, 8, 0
directories:
	.fill	4096, 8, 0
gdt:	.quad	0, 0x00af9a000000ffff
gdtr:	.word	15
	.long	gdt
