// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/agent_image.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/job/job_protocol.h"
#include "launcher/channel/wire.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t aligned(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The linker's build id in the notes of one segment.
std::string find_build_id(std::string_view notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes.data(), sizeof head);
    const std::size_t name = sizeof head;
    const std::size_t value = name + aligned(head.n_namesz);
    if (value + head.n_descsz > notes.size()) break;
    if (head.n_type == NT_GNU_BUILD_ID &&
        notes.substr(name, head.n_namesz) == std::string_view("GNU", 4)) {
      return internal::to_hex(notes.substr(value, head.n_descsz));
    }
    notes.remove_prefix(std::min(notes.size(), value + aligned(head.n_descsz)));
  }
  return {};
}

// Called for the main program first, which is all that counts.
int read_own_notes(dl_phdr_info* info, std::size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (std::size_t i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    id = find_build_id({notes, segment.p_memsz});
  }
  return 1;
}

// What the bootstrap script looks for in a program before it runs it: kept whole in the file, where
// the compiler could build a text out of pieces.
[[gnu::used]] constexpr char kIdentityBegin[] = "chainmail-agent/" CHAINMAIL_VERSION "/";

template <typename Part>
std::optional<Part> part_at(std::string_view bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Part)) return std::nullopt;
  Part part;
  std::memcpy(&part, bytes.data() + offset, sizeof part);
  return part;
}

}  // namespace

std::string agent_identity() {
  std::string build_id;
  dl_iterate_phdr(read_own_notes, &build_id);
  return kIdentityBegin + std::to_string(internal::kJobProtocolVersion) + "." +
         std::to_string(kAgentProtocolVersion) + "/" + (build_id.empty() ? "unknown" : build_id);
}

std::optional<std::size_t> loadable_bytes(std::string_view head, std::size_t file_bytes) {
  const auto elf = part_at<Elf64_Ehdr>(head, 0);
  if (!elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
      elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_phentsize != sizeof(Elf64_Phdr) ||
      elf->e_phoff > head.size()) {
    return std::nullopt;
  }
  std::size_t end = elf->e_phoff + elf->e_phnum * sizeof(Elf64_Phdr);
  for (std::size_t i = 0; i < elf->e_phnum; ++i) {
    const auto segment = part_at<Elf64_Phdr>(head, elf->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || segment->p_offset > file_bytes ||
        segment->p_filesz > file_bytes - segment->p_offset) {
      return std::nullopt;
    }
    end = std::max<std::size_t>(end, segment->p_offset + segment->p_filesz);
  }
  return end;
}

std::string loader_of(std::string_view head) {
  const auto elf = part_at<Elf64_Ehdr>(head, 0);
  if (!elf || std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
      elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_phoff > head.size()) {
    return {};
  }
  for (std::size_t i = 0; i < elf->e_phnum; ++i) {
    const auto segment = part_at<Elf64_Phdr>(head, elf->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    if (segment->p_type != PT_INTERP || segment->p_offset > head.size() ||
        segment->p_filesz > head.size() - segment->p_offset) {
      continue;
    }
    const std::string_view path = head.substr(segment->p_offset, segment->p_filesz);
    return std::string(path.substr(0, path.find('\0')));
  }
  return {};
}

std::uint32_t posix_checksum(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t rest = byte << 24U;
      for (int bit = 0; bit < 8; ++bit) {
        rest = (rest << 1U) ^ ((rest & 0x80000000U) != 0 ? 0x04C11DB7U : 0U);
      }
      table[byte] = rest;
    }
    return table;
  }();
  std::uint32_t sum = 0;
  const auto add = [&sum](std::uint32_t byte) {
    sum = (sum << 8U) ^ kTable[((sum >> 24U) ^ byte) & 0xFFU];
  };
  for (const char c : bytes) add(static_cast<unsigned char>(c));
  // Then the length, lowest byte first, without leading zeros.
  for (std::size_t length = bytes.size(); length > 0; length >>= 8U) {
    add(static_cast<std::uint32_t>(length & 0xFFU));
  }
  return ~sum;
}

AgentImage read_agent_image(const std::string& path) {
  constexpr std::size_t kHeadBytes = 4096;
  std::error_code error;
  std::size_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  bytes.resize(std::min(size, kHeadBytes));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (const auto loadable = loadable_bytes(bytes, size)) {
    size = *loadable;
    // The table of sections lies behind what is kept.
    Elf64_Ehdr head;
    std::memcpy(&head, bytes.data(), sizeof head);
    head.e_shoff = 0;
    head.e_shnum = 0;
    head.e_shstrndx = 0;
    std::memcpy(bytes.data(), &head, sizeof head);
  }
  const std::size_t begin = std::min(bytes.size(), size);
  bytes.resize(size);
  file.read(bytes.data() + begin, static_cast<std::streamsize>(size - begin));
  if (error || !file) throw system_error("cannot read the launcher's own program " + path);
  std::string checksum = std::to_string(posix_checksum(bytes)) + " " + std::to_string(size);
  std::string loader = loader_of(std::string_view(bytes).substr(0, kHeadBytes));
  return {std::make_shared<const std::string>(std::move(bytes)), std::move(checksum),
          std::move(loader)};
}

}  // namespace chainmail::launch
