/* The layout of records.h as this compiler sees it, one "name offset size" a line. */
#include <stddef.h>
#include <stdio.h>
#include "records.h"

#define FIELD(type, field) printf(#type "." #field " %zu %zu\n", offsetof(struct type, field), sizeof(((struct type *)0)->field))

int main(void)
{
	printf("pt_header 0 %zu\npt_table 0 %zu\n", sizeof(struct pt_header), sizeof(struct pt_table));
	FIELD(pt_header, magic);
	FIELD(pt_header, version);
	FIELD(pt_header, byte_order);
	FIELD(pt_header, header_bytes);
	FIELD(pt_header, record_bytes);
	FIELD(pt_header, count);
	FIELD(pt_header, levels);
	FIELD(pt_header, encoding);
	FIELD(pt_header, words);
	FIELD(pt_table, base);
	FIELD(pt_table, frame);
	FIELD(pt_table, parent);
	FIELD(pt_table, node);
	FIELD(pt_table, level);
	FIELD(pt_table, flags);
	printf("constants %d %d\n", PT_VERSION, PT_ENTRIES_HEADER);
	printf("flags %d %d\n", PT_CHANGED | PT_TORN << 8 | PT_FAULT << 16, PT_BAD_TYPE | PT_INFERRED << 8);
	return 0;
}
