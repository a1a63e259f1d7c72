/* describe COUNTED LEVEL...: snapshot.json of a process with tables of these levels, of which the kernel counts so many. */
#include <stdlib.h>
#include "json.h"

int main(int count, char **arguments)
{
	struct pt_table records[64] = { 0 };
	struct reading reading = { .tables = { .records = records, .count = count - 2, .levels = atoi(arguments[2]) } };
	struct bpf bpf = { 0 };
	struct kernel kernel = { 0 };
	struct process process = { .comm = "nobody" };
	struct options options = { 0 };
	struct topology topology = { .source = "none" };
	struct reader reader = { &bpf, &kernel, &process, &options, .format = format_x86 };
	struct description about = { .reader = &reader, .topology = &topology, .reading = &reading, .page_type = "" };

	for (int i = 2; i < count; i++)
		records[i - 2].level = atoi(arguments[i]);
	sign(&reading.after, "pgtables_bytes", atoi(arguments[1]) * 4096ULL);
	json_write(1, &about);
	return 0;
}
