/* SPDX-License-Identifier: MIT */
#include "elf_symbol.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const uint8_t *data;
    uint64_t bytes;
};

/* `count` structs of type T at `offset`, or NULL when the file is shorter. */
template <class T>
static const T *at(const image &file, uint64_t offset, uint64_t count = 1) {
    if (offset > file.bytes || count > (file.bytes - offset) / sizeof(T)) return nullptr;
    return (const T *)(file.data + offset);
}

static uint64_t lowest_loaded(const image &file, const Elf64_Ehdr *header) {
    uint64_t lowest = UINT64_MAX;
    const Elf64_Phdr *segment = at<Elf64_Phdr>(file, header->e_phoff, header->e_phnum);
    for (int i = 0; segment && i < header->e_phnum; i++)
        if (segment[i].p_type == PT_LOAD && segment[i].p_vaddr < lowest) lowest = segment[i].p_vaddr;
    return lowest & ~UINT64_C(4095);
}

static uint64_t find(const image &file, const Elf64_Shdr *table, const Elf64_Shdr *names, const char *name) {
    const char *text = at<char>(file, names->sh_offset, names->sh_size);
    uint64_t count = table->sh_size / sizeof(Elf64_Sym), length = strlen(name) + 1;
    const Elf64_Sym *symbol = at<Elf64_Sym>(file, table->sh_offset, count);
    for (uint64_t i = 0; text && symbol && i < count; i++)
        if (ELF64_ST_TYPE(symbol[i].st_info) == STT_FUNC && symbol[i].st_value && symbol[i].st_name < names->sh_size &&
            length <= names->sh_size - symbol[i].st_name && !memcmp(text + symbol[i].st_name, name, length))
            return symbol[i].st_value;
    return 0;
}

static uint64_t find_in(const image &file, const char *name, uint64_t *lowest_page) {
    const Elf64_Ehdr *header = at<Elf64_Ehdr>(file, 0);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64) return 0;
    *lowest_page = lowest_loaded(file, header);
    const Elf64_Shdr *section = at<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
    for (int i = 0; section && i < header->e_shnum; i++) {
        bool symbols = section[i].sh_type == SHT_SYMTAB || section[i].sh_type == SHT_DYNSYM;
        if (!symbols || section[i].sh_link >= header->e_shnum) continue;
        uint64_t address = find(file, &section[i], &section[section[i].sh_link], name);
        if (address) return address;
    }
    return 0;
}

uint64_t elf_symbol(const char *path, const char *name, uint64_t *lowest_page) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    uint64_t address = 0;
    if (fd < 0) return 0;
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
        void *data = mmap(nullptr, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            address = find_in({(const uint8_t *)data, (uint64_t)status.st_size}, name, lowest_page);
            munmap(data, (size_t)status.st_size);
        }
    }
    close(fd);
    return address;
}
