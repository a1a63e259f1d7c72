/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The struct file behind one of our own descriptors. */
#ifndef FILE_BPF_H
#define FILE_BPF_H

static __always_inline struct file *own_file(int fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct file **files = BPF_CORE_READ(task, files, fdt, fd), *file = 0;

	if (fd < 0 || (u32)fd >= BPF_CORE_READ(task, files, fdt, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

#endif
