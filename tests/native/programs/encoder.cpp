// The native encoder, strip, checksum and struct layouts as C functions, for tests to call.
#include <cstddef>

#include "../../../pintool/crc32.h"
#include "../../../pintool/encode.h"
#include "../../../pintool/lines.h"
#include "../../../pintool/strip.h"

extern "C" size_t encode(const uint64_t *touches, size_t n, uint8_t *out, uint64_t *accesses) {
    return (size_t)(ptt_encode(touches, n, out, accesses) - out);
}

// Accesses, page << 1 | store, to the records of chunks of `room` touches at most, each ended by a 0.
extern "C" size_t strip(const uint64_t *accesses, size_t n, uint32_t room, int whole, uint64_t *out) {
    static ptt_strip strip;
    size_t done = 0;
    auto collect = [&] {
        size_t records = ptt_strip_collect(&strip);
        for (size_t i = 0; i < records; i++) out[done++] = strip.record[i];
        out[done++] = 0;
        ptt_strip_clear(&strip);
    };
    strip.rest = 0;
    ptt_strip_clear(&strip);
    for (size_t i = 0; i < n; i++) {
        uint64_t page = accesses[i] >> 1, store = accesses[i] & 1;
        if (ptt_strip_same(&strip, page, store)) continue;
        bool full = strip.touches == room && ptt_strip_begins(&strip, page);
        if (!full && ptt_strip_known(&strip, page, store)) continue;
        if (full) collect();
        if (!strip.touches) ptt_strip_begin(&strip, whole);
        ptt_strip_more(&strip, page, store);
    }
    collect();
    return done;
}

// Accesses, chunk << 48 | address, to the four numbers of the header.
extern "C" void lines(const uint64_t *accesses, size_t n, uint32_t *counts) {
    ptt_page_lines *table = new ptt_page_lines[PTT_LINE_PLACES]();
    for (size_t i = 0; i < n; i++) {
        uint64_t address = accesses[i] << 16 >> 16;
        if (ptt_is_sampled(address >> 12)) ptt_use_line(table, address, ptt_half((uint32_t)(accesses[i] >> 48)));
    }
    ptt_count_lines(table, counts);
    delete[] table;
}

extern "C" const ptt_array reach[] = PTT_REACH;
extern "C" const size_t reaches = sizeof reach / sizeof reach[0];

extern "C" uint32_t checksum(const void *data, size_t bytes) {
    static crc32_tables tables;
    crc32_prepare(&tables);
    return crc32_update(&tables, 0, data, bytes);
}

#define FIELD(type, name) #name, offsetof(type, name), sizeof(((type *)0)->name)
struct field {
    const char *name;
    size_t offset, bytes;
};

extern "C" const field header_fields[] = {
    {FIELD(ptt_header, magic)},    {FIELD(ptt_header, version)},      {FIELD(ptt_header, byte_order)},
    {FIELD(ptt_header, header_bytes)}, {FIELD(ptt_header, crc)},      {FIELD(ptt_header, pid)},
    {FIELD(ptt_header, ended)},    {FIELD(ptt_header, detail)},       {FIELD(ptt_header, flags)},
    {FIELD(ptt_header, start)},    {FIELD(ptt_header, end)},          {FIELD(ptt_header, bytes)},
    {FIELD(ptt_header, records)},  {FIELD(ptt_header, accesses)},     {FIELD(ptt_header, dropped)},
    {FIELD(ptt_header, guest_base)}, {FIELD(ptt_header, arch)},       {FIELD(ptt_header, tracer)},
    {FIELD(ptt_header, command)},  {FIELD(ptt_header, rules)},        {FIELD(ptt_header, lost_threads)},
    {FIELD(ptt_header, lines)},    {FIELD(ptt_header, unused)},   {FIELD(ptt_header, stripped)},     {FIELD(ptt_header, more)},
    {nullptr, sizeof(ptt_header), 0}};
extern "C" const field frame_fields[] = {
    {FIELD(ptt_frame, magic)}, {FIELD(ptt_frame, crc)},      {FIELD(ptt_frame, bytes)},
    {FIELD(ptt_frame, records)}, {FIELD(ptt_frame, kind)},   {FIELD(ptt_frame, thread)},
    {FIELD(ptt_frame, cpu)},   {FIELD(ptt_frame, zero)},     {FIELD(ptt_frame, time)},
    {FIELD(ptt_frame, accesses)}, {FIELD(ptt_frame, instructions)}, {nullptr, sizeof(ptt_frame), 0}};
extern "C" const field event_fields[] = {
    {FIELD(ptt_event, kind)}, {FIELD(ptt_event, zero)}, {FIELD(ptt_event, a)},      {FIELD(ptt_event, b)},
    {FIELD(ptt_event, c)},    {FIELD(ptt_event, d)},    {FIELD(ptt_event, result)}, {nullptr, sizeof(ptt_event), 0}};
