/*
 * describe COUNTED LEVEL... [/ ROOT...]: snapshot.json of a process with tables of these levels, of which the kernel
 * counts so many; and its roots by node, 1 mm->pgd, 0 none: nodes with other roots have one table of level 1 each.
 */
#include <stdlib.h>
#include <string.h>
#include "json.h"

int main(int count, char **arguments)
{
	struct pt_table records[64] = { 0 };
	struct pt_table leaf = { .level = 1 };
	struct ptd_owner owner = { 4096, 8192, 1 };
	struct reading reading = { .tables = { .records = records, .levels = atoi(arguments[2]) } };
	struct ptd_mm found = { .pgd = 1 };
	int i = 2;
	struct bpf bpf = { 0 };
	struct kernel kernel = { 0 };
	struct process process = { .comm = "nobody" };
	struct options options = { 0 };
	struct topology topology = { .source = "none" };
	struct reader reader = { &bpf, &kernel, &process, &options, .format = format_x86 };
	struct description about = { .reader = &reader, .topology = &topology, .reading = &reading, .page_type = "" };

	for (; i < count && strcmp(arguments[i], "/"); i++)
		records[reading.tables.count++].level = atoi(arguments[i]);
	for (i++; i < count; i++)
		found.replica[found.replicas++] = atoi(arguments[i]);
	replicas_find(&reader.replicas, &found);
	for (unsigned k = 0; k < reader.replicas.count; k++)
		reading.replica[k] = (struct tables){ .records = &leaf, .count = 1 };
	reading.owners = &owner;
	reading.owner_count = 1;
	sign(&reading.after, "pgtables_bytes", atoi(arguments[1]) * 4096ULL);
	json_write(1, &about);
	return 0;
}
