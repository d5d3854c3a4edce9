#include "import_hook.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace {

std::atomic<pfb_pool*> pool{nullptr};
std::atomic<std::size_t> alignment{0};
std::atomic<bool> on{false};
std::atomic<std::uint64_t> requests{0}, requested_bytes{0}, served{0}, served_bytes{0}, freed{0};
std::atomic<std::uint64_t> entries{0};
std::uint32_t tag = 0;

int PosixMemalign(void** result, std::size_t align, std::size_t bytes) {
  if (align == alignment.load(std::memory_order_relaxed)) {
    requests.fetch_add(1, std::memory_order_relaxed);
    requested_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (on.load(std::memory_order_acquire)) {
      const int error = errno;
      // The caller asks for a page, but needs what vector code needs: 64 bytes.  Small tensors that
      // all start at the same place of a page would get in each other's way in the processor's
      // caches, and each would fill a page.
      void* block = pfb_pool_allocate_for(pool.load(std::memory_order_relaxed), bytes, 64, tag);
      errno = error;
      if (block != nullptr) {
        served.fetch_add(1, std::memory_order_relaxed);
        served_bytes.fetch_add(bytes, std::memory_order_relaxed);
        *result = block;
        return 0;
      }
    }
  }
  return posix_memalign(result, align, bytes);
}

void Free(void* address) {
  pfb_pool* ours = pool.load(std::memory_order_acquire);
  if (address == nullptr || ours == nullptr || !pfb_pool_owns(ours, address)) {
    free(address);
    return;
  }
  const int error = errno;
  pfb_pool_free(ours, address);
  freed.fetch_add(1, std::memory_order_relaxed);
  errno = error;
}

struct Entry {
  void** slot;
  void* replacement;
  bool read_only;  // the loader has made its page so after relocation
};

struct Search {
  std::vector<std::string> prefixes;
  std::vector<Entry> frees, allocations;
  bool found_library = false;
};

bool HasPrefix(const char* path, const std::vector<std::string>& prefixes) {
  const char* slash = strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  for (const std::string& prefix : prefixes) {
    if (strncmp(name, prefix.c_str(), prefix.size()) == 0) return true;
  }
  return false;
}

bool IsImport(unsigned type) {
#if defined(__x86_64__)
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
  static_cast<void>(type);
  return false;
#endif
}

// The dynamic section, read: the tables that relocation uses.
struct Tables {
  struct {
    const ElfW(Rela) * first;
    std::size_t bytes;
  } relocations[2] = {};
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
};

Tables ReadDynamic(const ElfW(Dyn) * entry) {
  Tables tables;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const auto pointer = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_JMPREL:
        tables.relocations[0].first = reinterpret_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_PLTRELSZ:
        tables.relocations[0].bytes = entry->d_un.d_val;
        break;
      case DT_RELA:
        tables.relocations[1].first = reinterpret_cast<const ElfW(Rela)*>(pointer);
        break;
      case DT_RELASZ:
        tables.relocations[1].bytes = entry->d_un.d_val;
        break;
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(pointer);
        break;
    }
  }
  return tables;
}

int CollectEntries(dl_phdr_info* library, std::size_t, void* opaque) {
  Search& search = *static_cast<Search*>(opaque);
  if (!HasPrefix(library->dlpi_name, search.prefixes)) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  std::uintptr_t relro_start = 0, relro_end = 0;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = library->dlpi_phdr[i];
    const std::uintptr_t start = library->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(start);
    if (part.p_type == PT_GNU_RELRO) {
      relro_start = start / page * page;
      relro_end = (start + part.p_memsz) / page * page;
    }
  }
  if (dynamic == nullptr) return 0;
  search.found_library = true;
  const Tables tables = ReadDynamic(dynamic);
  for (const auto& table : tables.relocations) {
    for (std::size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela) & relocation = table.first[i];
      const auto symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol == 0 || !IsImport(ELF64_R_TYPE(relocation.r_info))) continue;
      const char* name = tables.strings + tables.symbols[symbol].st_name;
      const bool allocates = strcmp(name, "posix_memalign") == 0;
      if (!allocates && strcmp(name, "free") != 0) continue;
      const std::uintptr_t slot = library->dlpi_addr + relocation.r_offset;
      const Entry entry = {
          reinterpret_cast<void**>(slot),
          allocates ? reinterpret_cast<void*>(PosixMemalign) : reinterpret_cast<void*>(Free),
          slot >= relro_start && slot < relro_end};
      (allocates ? search.allocations : search.frees).push_back(entry);
    }
  }
  return 0;
}

bool Replace(const Entry& entry) {
  if (__atomic_load_n(entry.slot, __ATOMIC_ACQUIRE) == entry.replacement) return true;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* start = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(entry.slot) / page * page);
  if (entry.read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(entry.slot, entry.replacement, __ATOMIC_RELEASE);
  if (entry.read_only) mprotect(start, page, PROT_READ);
  entries.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::vector<std::string> Split(const char* text) {
  std::vector<std::string> parts(1);
  for (; *text != '\0'; ++text) {
    if (*text == ',') {
      parts.emplace_back();
    } else {
      parts.back() += *text;
    }
  }
  return parts;
}

std::string Install(pfb_pool* to, const char* prefixes, std::size_t align) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  Search search;
  search.prefixes = Split(prefixes);
  dl_iterate_phdr(CollectEntries, &search);
  if (!search.found_library) return "no library of that name is loaded";
  if (search.allocations.empty()) return "no entry for posix_memalign in the libraries' imports";
  if (search.frees.empty()) return "no entry for free in the libraries' imports";
  if (pool.load(std::memory_order_acquire) == nullptr) {
    tag = pfb_pool_tag("paddle");
    alignment.store(align, std::memory_order_relaxed);
    pool.store(to, std::memory_order_release);
  }
  // First whoever frees: no address of the pool may ever reach the system's free.
  for (const Entry& entry : search.frees) {
    if (!Replace(entry)) return std::string("the table is write-protected: ") + strerror(errno);
  }
  for (const Entry& entry : search.allocations) {
    if (!Replace(entry)) return std::string("the table is write-protected: ") + strerror(errno);
  }
  return "";
}

}  // namespace

int pfb_hook_install(pfb_pool* to, const char* prefixes, size_t align, char* reason,
                     size_t capacity) {
  const std::string fault = Install(to, prefixes, align);
  snprintf(reason, capacity, "%s", fault.c_str());
  return fault.empty() ? 0 : 1;
}

void pfb_hook_enable(int value) { on.store(value != 0, std::memory_order_release); }

void pfb_hook_get_statistics(pfb_hook_statistics* statistics) {
  *statistics = {requests.load(),     requested_bytes.load(), served.load(),
                 served_bytes.load(), freed.load(),           entries.load()};
}
