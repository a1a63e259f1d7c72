/* SPDX-License-Identifier: MIT */
/* snapshot.json, as analyzer/ptanalyze/formats/snapshot_file.py reads it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "dump.h"

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else if (*c < 32 || *c > 126)
			fprintf(out, "\\u%04x", *c);
		else
			fputc(*c, out);
	}
	fputc('"', out);
}

/* "0-3,8" or "10 20": a list of numbers with ranges. */
static void put_numbers(FILE *out, const char *text)
{
	const char *separator = "";

	fputc('[', out);
	while (*text) {
		char *end;
		long first = strtol(text, &end, 10), last = first;

		if (end == text)
			break;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (; first <= last; first++, separator = ", ")
			fprintf(out, "%s%ld", separator, first);
		text = end + strspn(end, ", ");
	}
	fputc(']', out);
}

static void put_topology(FILE *out, const struct topology *topology)
{
	fputs(" \"nodes\": [", out);
	for (size_t i = 0; i < topology->node_count; i++) {
		const struct node *node = &topology->nodes[i];
		const char *separator = "";

		fprintf(out, "%s\n  {\"id\": %d, \"cpus\": ", i ? "," : "", node->id);
		put_numbers(out, node->cpus);
		fputs(", \"distance\": ", out);
		put_numbers(out, node->distance);
		fputs(", \"frames\": [", out);
		for (size_t r = 0; r < topology->range_count; r++) {
			const struct range *range = &topology->ranges[r];

			if (range->node != node->id)
				continue;
			fprintf(out, "%s[%llu, %llu]", separator, (unsigned long long)range->start,
				(unsigned long long)range->end);
			separator = ", ";
		}
		fputs("]}", out);
	}
	fputs("\n ],\n", out);
}

static void put_signature(FILE *out, const char *name, const struct signature *signature, bool has_lock_seq)
{
	fprintf(out, "\"%s\": {\"minflt\": %llu, \"majflt\": %llu, \"pgtables_bytes\": %llu", name,
		(unsigned long long)signature->minflt, (unsigned long long)signature->majflt,
		(unsigned long long)signature->pgtables_bytes);
	if (has_lock_seq)
		fprintf(out, ", \"mm_lock_seq\": %llu", (unsigned long long)signature->lock_seq);
	fputs("}, ", out);
}

/* mm->pgtables_bytes counts every table but the root, and one table in reserve for each huge anonymous page. */
static void put_completeness(FILE *out, const struct reading *reading)
{
	const struct tables *tables = &reading->tables;
	long long counted = reading->after.pgtables_bytes / PT_TABLE_BYTES;
	long long difference = counted - ((long long)tables->count - 1);
	bool explained = difference >= 0 && (unsigned long long)difference <= tables->huge_leaves;
	const char *why = !difference ? "equal; the kernel does not count the root" :
			  explained   ? "tables deposited for huge pages; the kernel does not count the root" :
					"not explained: tables were missed, freed or shared while reading";

	fprintf(out,
		"  \"completeness\": {\"tables\": %zu, \"counted_by_kernel\": %lld, \"huge_leaves\": %llu, "
		"\"difference\": %lld, \"explained\": %s, \"explanation\": \"%s\"},\n",
		tables->count, counted, (unsigned long long)tables->huge_leaves, difference, truth(explained), why);
}

static void put_verified(FILE *out, const struct verified *verified)
{
	fprintf(out, "  \"verify\": {\"checked\": %llu, \"mismatched\": %llu, \"hidden\": %llu, \"examples\": [",
		(unsigned long long)verified->checked, (unsigned long long)verified->mismatched,
		(unsigned long long)verified->hidden);
	for (size_t i = 0; i < 4 && i < verified->mismatched; i++) {
		fputs(i ? ", " : "", out);
		put_string(out, verified->examples[i]);
	}
	fputs("]},\n", out);
}

static void put_reading(FILE *out, const struct reading *reading)
{
	const struct tables *tables = &reading->tables;

	fputs("  \"quiescence\": {", out);
	put_signature(out, "before", &reading->before, reading->has_lock_seq);
	put_signature(out, "after", &reading->after, reading->has_lock_seq);
	fprintf(out, "\"quiet\": %s},\n", truth(reading->quiet));
	put_completeness(out, reading);
	fprintf(out,
		"  \"reading\": {\"changed\": %llu, \"torn\": %llu, \"fault\": %llu, \"bad_type\": %llu, "
		"\"dropped\": %llu},\n",
		(unsigned long long)tables->changed, (unsigned long long)tables->torn,
		(unsigned long long)tables->fault, (unsigned long long)tables->bad_type,
		(unsigned long long)tables->dropped);
}

static void put_machine(FILE *out, const struct timespec *started)
{
	char model[256] = "", line[512], stamp[64];
	FILE *cpu = fopen("/proc/cpuinfo", "r");
	struct utsname system;

	while (cpu && fgets(line, sizeof(line), cpu) && !*model)
		sscanf(line, "model name : %255[^\n]", model);
	if (cpu)
		fclose(cpu);
	uname(&system);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", gmtime(&started->tv_sec));
	fputs("  \"kernel\": ", out);
	put_string(out, system.release);
	fputs(",\n  \"cpu\": ", out);
	put_string(out, model);
	fprintf(out, ",\n  \"time\": \"%s.%03ldZ\",\n", stamp, started->tv_nsec / 1000000);
}

static void put_facts(FILE *out, const struct description *about)
{
	fprintf(out, "  \"pid\": %d,\n  \"comm\": ", about->process->pid);
	put_string(out, about->process->comm);
	fprintf(out, ",\n  \"uid\": %u,\n", about->process->uid);
	put_machine(out, &about->started);
	fprintf(out, "  \"duration_s\": %.6f,\n  \"method\": \"bpf\",\n", about->reading->seconds);
	put_reading(out, about->reading);
	fprintf(out, "  \"retries\": %u,\n  \"stopped\": %s,\n", about->retries, truth(about->stop.stopped));
	if (about->options->stop)
		fprintf(out, "  \"stopped_s\": %.6f,\n  \"stopped_before\": %s,\n", about->stop.seconds,
			truth(about->stop.already));
	fprintf(out, "  \"streamed\": %s,\n", truth(about->reading->tables.streamed));
	if (about->verified)
		put_verified(out, about->verified);
	fprintf(out, "  \"encryption_bit\": %s,\n", truth(about->kernel->encryption_mask));
	fprintf(out, "  \"page_type\": \"%s\",\n  \"node_source\": \"%s\",\n  \"unknown\": []\n", about->page_type,
		about->topology->source);
}

void json_write(int file, const struct description *about)
{
	FILE *out = fdopen(dup(file), "w");

	if (!out)
		fail(EXIT_WRONG_USE, "snapshot.json: %s", strerror(errno));
	fprintf(out, "{\n \"format\": \"ptanalyze-snapshot\",\n \"version\": 1,\n \"levels\": %u,\n", about->kernel->levels);
	fputs(" \"encoding\": \"x86\",\n", out);
	put_topology(out, about->topology);
	fputs(" \"facts\": {\n", out);
	put_facts(out, about);
	fputs(" }\n}\n", out);
	if (ferror(out) | fclose(out))
		fail(EXIT_WRONG_USE, "snapshot.json: cannot write: %s; nothing was kept", strerror(errno));
}
