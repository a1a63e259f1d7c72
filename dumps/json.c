/* SPDX-License-Identifier: MIT */
/* snapshot.json, as analyzer/ptanalyze/formats/snapshot.py reads it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "json.h"
#include "output.h"

const char *truth(bool value)
{
	return value ? "true" : "false";
}

void json_string(FILE *out, const char *text)
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

static void put_signature(FILE *out, const char *name, const struct signature *signature)
{
	fprintf(out, "\"%s\": {", name);
	for (unsigned i = 0; i < signature->count; i++)
		fprintf(out, "%s\"%s\": %llu", i ? ", " : "", signature->name[i],
			(unsigned long long)signature->value[i]);
	fputs("}, ", out);
}

/* mm->pgtables_bytes counts tables of levels 1 to 3, and one in reserve for each huge anonymous page. */
static void put_completeness(FILE *out, const struct description *about)
{
	const struct tables_sum sum = reading_sum(about->reader, about->reading);
	long long counted = signed_value(&about->reading->after, "pgtables_bytes") / PT_TABLE_BYTES;
	long long difference = counted - (long long)sum.counted;
	bool explained = difference >= 0 && (unsigned long long)difference <= sum.huge_leaves;
	const char *why;

	if (!about->reader->bpf)
		why = explained ? "as many tables as the leaves need, and those deposited for huge pages" :
				  "pagemap does not show tables that map nothing";
	else if (!difference)
		why = "equal; the kernel counts levels 1 to 3";
	else
		why = explained ? "tables deposited for huge pages; the kernel counts levels 1 to 3" :
				  "not explained: tables were missed, freed or shared while reading";
	fprintf(out,
		"  \"completeness\": {\"tables\": %zu, \"counted_by_kernel\": %lld, \"huge_leaves\": %llu, "
		"\"difference\": %lld, \"explained\": %s, \"explanation\": \"%s\"},\n",
		sum.count, counted, (unsigned long long)sum.huge_leaves, difference, truth(explained), why);
}

static void put_verified(FILE *out, const struct verified *verified)
{
	fprintf(out, "  \"verify\": {\"checked\": %llu, \"mismatched\": %llu, \"hidden\": %llu, \"examples\": [",
		(unsigned long long)verified->checked, (unsigned long long)verified->mismatched,
		(unsigned long long)verified->hidden);
	for (size_t i = 0; i < 4 && i < verified->mismatched; i++) {
		fputs(i ? ", " : "", out);
		json_string(out, verified->examples[i]);
	}
	fputs("]},\n", out);
}

static void put_tree(FILE *out, const struct replicas *replicas, unsigned tree)
{
	const char *separator = "";

	fprintf(out, "%s\n   {\"name\": \"%s\", \"nodes\": [", tree ? "," : "",
		tree ? replicas->replica[tree - 1].name : "gpt");
	for (unsigned node = 0; node < replicas->nodes; node++) {
		if (replicas->tree_of[node] != (int)tree)
			continue;
		fprintf(out, "%s%u", separator, node);
		separator = ", ";
	}
	fputs("]}", out);
}

static void put_replicas(FILE *out, const struct description *about)
{
	const struct reading *reading = about->reading;

	fputs("  \"replicas\": {\"trees\": [", out);
	for (unsigned tree = 0; tree <= about->reader->replicas.count; tree++)
		put_tree(out, &about->reader->replicas, tree);
	fputs("],\n   \"owners\": ", out);
	for (size_t i = 0; i < reading->owner_count; i++)
		fprintf(out, "%s[%llu, %llu, %llu]", i ? ", " : "[", reading->owners[i].start, reading->owners[i].end,
			reading->owners[i].node);
	fputs(reading->owner_count ? "]},\n" : "null},\n", out);
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
	json_string(out, system.release);
	fputs(",\n  \"cpu\": ", out);
	json_string(out, model);
	fprintf(out, ",\n  \"time\": \"%s.%03ldZ\",\n", stamp, started->tv_nsec / 1000000);
}

static double seconds(const struct timespec *time)
{
	return (double)time->tv_sec + (double)time->tv_nsec / 1e9;
}

/* How long the machine and the process had run when reading began: other clocks need not agree with this machine's. */
static void put_ages(FILE *out, const struct description *about)
{
	double began = process_began(about->reader->process), up;
	struct timespec now, boot;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	up = seconds(&boot) - (seconds(&now) - seconds(&about->started));
	fprintf(out, "  \"uptime_s\": %.3f,\n", up);
	if (began >= 0)
		fprintf(out, "  \"process_s\": %.3f,\n", up > began ? up - began : 0);
}

/* Who, where and when. */
void json_origin(FILE *out, const struct description *about)
{
	const struct process *process = about->reader->process;

	fprintf(out, "  \"pid\": %d,\n  \"comm\": ", process->pid);
	json_string(out, process->comm);
	fprintf(out, ",\n  \"uid\": %u,\n", process->uid);
	if (*process->huge_pages) {
		fputs("  \"huge_pages\": ", out);
		json_string(out, process->huge_pages);
		fputs(",\n", out);
	}
	put_machine(out, &about->started);
	put_ages(out, about);
	fprintf(out, "  \"duration_s\": %.6f,\n  \"method\": \"%s\",\n", about->reading->seconds,
		about->reader->bpf ? "bpf" : "pagemap");
}

static void put_flaws(FILE *out, const struct tables_sum *sum)
{
	fprintf(out,
		"  \"reading\": {\"changed\": %llu, \"torn\": %llu, \"fault\": %llu, \"bad_type\": %llu, "
		"\"dropped\": %llu},\n",
		(unsigned long long)sum->changed, (unsigned long long)sum->torn, (unsigned long long)sum->fault,
		(unsigned long long)sum->bad_type, (unsigned long long)sum->dropped);
}

/* How well it was read; the last of the facts. */
void json_reading(FILE *out, const struct description *about)
{
	const struct tables_sum sum = reading_sum(about->reader, about->reading);

	fputs("  \"quiescence\": {", out);
	put_signature(out, "before", &about->reading->before);
	put_signature(out, "after", &about->reading->after);
	fprintf(out, "\"quiet\": %s},\n", truth(about->reading->quiet));
	if (about->reader->bpf)
		put_flaws(out, &sum);
	fprintf(out, "  \"retries\": %u,\n  \"stopped\": %s,\n", about->retries, truth(about->stop.stopped));
	if (about->reader->options->stop)
		fprintf(out, "  \"stopped_s\": %.6f,\n  \"stopped_before\": %s,\n  \"gave_up\": %s,\n",
			about->stop.seconds, truth(about->stop.already), truth(about->stop.gave_up));
	fprintf(out, "  \"streamed\": %s,\n", truth(sum.streamed));
	if (about->reader->bpf)
		fprintf(out, "  \"encryption_bit\": %s,\n", truth(about->reader->kernel->encryption_mask));
	fprintf(out, "  \"page_type\": \"%s\",\n  \"node_source\": \"%s\",\n  \"unknown\": [", about->page_type,
		about->topology->source);
	for (const char *const *what = about->unknown; *what; what++)
		fprintf(out, "%s\"%s\"", what == about->unknown ? "" : ", ", *what);
	fputs("]\n }\n}\n", out);
}

FILE *json_begin(int file, const char *name, const char *format, const struct description *about)
{
	FILE *out = fdopen(dup(file), "w");

	if (!out)
		fail(EXIT_WRONG_USE, "%s: %s", name, strerror(errno));
	fprintf(out, "{\n \"format\": \"%s\",\n \"version\": 1,\n \"levels\": %u,\n \"encoding\": \"%s\",\n", format,
		about->reading->tables.levels, about->reader->format.encoding);
	put_topology(out, about->topology);
	return out;
}

void json_end(FILE *out, const char *name)
{
	if (ferror(out) | fclose(out))
		fail(EXIT_WRONG_USE, "%s: cannot write: %s; nothing was kept", name, strerror(errno));
}

void json_write(int file, const struct description *about)
{
	FILE *out = json_begin(file, "snapshot.json", "ptanalyze-snapshot", about);

	fputs(" \"facts\": {\n", out);
	json_origin(out, about);
	put_completeness(out, about);
	if (about->reader->replicas.count)
		put_replicas(out, about);
	if (about->verified)
		put_verified(out, about->verified);
	json_reading(out, about);
	json_end(out, "snapshot.json");
}
