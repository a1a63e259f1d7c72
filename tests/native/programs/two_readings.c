/* two_readings TABLES ENTRIES: a long reading that went to the file, then a short and better one in memory is kept. */
#include <fcntl.h>
#include <string.h>
#include "tables.h"

#define LIMIT (4 * PT_TABLE_BYTES)

static void read_some(struct tables *tables, int file, int count)
{
	struct ptd_page page = { 0 };

	tables_init(tables, LIMIT, &format_x86);
	tables_reset(tables, file);
	for (int i = 0; i < count; i++) {
		struct ptd_table table = { .address = 4096ULL * (i + 1), .level = i ? 3 : 4, .base = i ? (i - 1ULL) << 39 : 0 };

		memset(&page, 0, sizeof(page));
		for (int child = 0; !i && child < count - 1; child++)
			page.entry[child] = 4096ULL * (child + 2) | PTD_ENTRY_PRESENT;
		tables_add(tables, &table, &page, 0);
	}
	tables_finish(tables);
}

int main(int count, char **arguments)
{
	int file[2];
	struct tables longer, shorter;

	for (int i = 0; i < 2; i++)
		file[i] = open(arguments[i + 1], O_RDWR | O_CREAT, 0600);
	read_some(&longer, file[1], 12);
	read_some(&shorter, file[1], 3);
	tables_write(&shorter, file[0], file[1]);
	return !longer.streamed || shorter.streamed || count != 3;
}
