// Mutations for readers of ELF files and metadata: random bytes seldom get past their first checks.  The
// disassembly stays unchanged: llvm-objdump wrote it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "input.hpp"

using namespace fuzz;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Range {
  u64 begin, end;
};

struct Mutator {
  std::mt19937 rng;

  u64 below(u64 n) { return n ? rng() % n : 0; }
  bool one_in(u64 n) { return below(n) == 0; }

  // Limits of number ranges, sizes of this file, and their neighbours.
  u64 boundary(u64 file_size) {
    const u64 values[] = {0,          1,
                          2,          7,
                          8,          63,
                          64,         255,
                          256,        1023,
                          1024,       4096,
                          65535,      65536,
                          1 << 20,    1u << 31,
                          0xffffffff, 1ull << 32,
                          1ull << 63, ~0ull,
                          file_size,  file_size / 2,
                          0xfffffff0, ~0ull - 255,
                          0x7fffffff, 100000000};
    const u64 value = values[below(sizeof values / sizeof *values)];
    return value + (one_in(3) ? below(5) - 2 : 0);
  }

  template <class T>
  static T get(const std::string& s, u64 at) {
    T value{};
    if (at <= s.size() && sizeof value <= s.size() - at) std::memcpy(&value, s.data() + at, sizeof value);
    return value;
  }
  static void put(std::string& s, u64 at, u64 value, u64 bytes) {
    if (at <= s.size() && bytes <= s.size() - at) std::memcpy(&s[at], &value, bytes);
  }

  // Sets a number of 1 to 8 bytes, aligned within its table, to a limit, or flips one bit.
  void number(std::string& s, Range where) {
    where.end = std::min<u64>(where.end, s.size());
    if (where.begin >= where.end) return;
    const u64 bytes = 1ull << below(4);
    const u64 at = where.begin + below((where.end - where.begin) / bytes) * bytes;
    if (one_in(3))
      s[std::min<u64>(at + below(bytes), s.size() - 1)] ^= static_cast<char>(1 << below(8));
    else
      put(s, at, boundary(s.size()), bytes);
  }

  // Headers, symbol tables, notes and descriptors of a code object.
  std::vector<Range> tables(const std::string& elf) {
    std::vector<Range> found{{0, 64}};
    const u64 segments = get<u64>(elf, 32), sections = get<u64>(elf, 40);
    found.push_back({segments, segments + 56u * get<u16>(elf, 56)});
    found.push_back({sections, sections + 64u * get<u16>(elf, 60)});
    for (u64 i = 0; i < get<u16>(elf, 60); ++i) {
      const u64 header = sections + 64 * i, offset = get<u64>(elf, header + 24);
      const u32 type = get<u32>(elf, header + 4);
      const bool is_data = type == 1 && !(get<u64>(elf, header + 8) & 4);  // .rodata has the descriptors
      if (type == 2 || type == 7 || type == 11 || is_data)
        found.push_back({offset, offset + get<u64>(elf, header + 32)});
      found.push_back({header, header + 64});
    }
    return found;
  }

  void change_table(std::string& elf) {
    const std::vector<Range> all = tables(elf);
    for (u64 times = 1 + below(3); times; --times) number(elf, all[below(all.size())]);
  }

  // ---- metadata
  // Where each element of MessagePack data begins and ends, keys and values alike.
  static u64 elements(const std::string& s, u64 at, std::vector<Range>& found, int depth) {
    if (at >= s.size() || depth > 20) return s.size();
    const u8 type = static_cast<u8>(s[at]);
    const auto big = [&](u64 bytes) {
      u64 value = 0;
      for (u64 i = 0; i < bytes && at + 1 + i < s.size(); ++i)
        value = value << 8 | static_cast<u8>(s[at + 1 + i]);
      return value;
    };
    u64 end = at + 1, inner = 0;
    if (type >= 0x80 && type < 0x90)
      inner = 2 * (type & 15);
    else if (type >= 0x90 && type < 0xa0)
      inner = type & 15;
    else if (type >= 0xa0 && type < 0xc0)
      end += type & 31;
    else if (type == 0xd9)
      end += 1 + big(1);
    else if (type == 0xda)
      end += 2 + big(2);
    else if (type == 0xcc)
      end += 1;
    else if (type == 0xcd)
      end += 2;
    else if (type == 0xce)
      end += 4;
    else if (type == 0xcf)
      end += 8;
    else if (type == 0xdc || type == 0xde) {
      end += 2;
      inner = big(2) * (type == 0xde ? 2 : 1);
    }
    const u64 place = found.size();
    found.push_back({at, end});
    for (; inner && end < s.size(); --inner) end = elements(s, end, found, depth + 1);
    found[place].end = std::min<u64>(end, s.size());
    return found[place].end;
  }

  std::string number_text(u64 value) {
    std::string s(1, static_cast<char>(0xcf));
    for (int shift = 56; shift >= 0; shift -= 8) s += static_cast<char>(value >> shift);
    return s;
  }

  void change_metadata(std::string& note) {
    std::vector<Range> all;
    elements(note, 0, all, 0);
    if (all.empty()) return;
    const Range one = all[below(all.size())], other = all[below(all.size())];
    const u64 size = one.end - one.begin;
    const std::string replacement = note.substr(other.begin, other.end - other.begin);
    switch (below(5)) {
      case 0: note.replace(one.begin, size, replacement); break;
      case 1: note.replace(one.begin, size, number_text(boundary(note.size()))); break;
      case 2: note.replace(one.begin, size, std::string(1ull << below(17), '\x91')); break;
      case 3: note[one.begin] ^= static_cast<char>(1 << below(8)); break;
      case 4:  // another key or word of equal length
        if (size > 1) note[one.begin + 1 + below(size - 1)] ^= 1;
        break;
    }
  }

  // Appends a changed copy of the metadata to the file and points the note segment to it.
  void change_note(std::string& elf) {
    const u64 segments = get<u64>(elf, 32);
    for (u64 i = 0; i < get<u16>(elf, 56); ++i) {
      const u64 header = segments + 56 * i, offset = get<u64>(elf, header + 8);
      if (get<u32>(elf, header) != 4 || offset > elf.size()) continue;
      const u64 name = get<u32>(elf, offset), begin = offset + 12 + (name + 3) / 4 * 4;
      if (begin > elf.size()) continue;
      std::string note = elf.substr(begin, get<u32>(elf, offset + 4));
      for (u64 times = 1 + below(3); times; --times) change_metadata(note);
      std::string head = elf.substr(offset, begin - offset);
      put(head, 4, note.size(), 4);
      put(elf, header + 8, elf.size(), 8);
      put(elf, header + 32, head.size() + note.size(), 8);
      elf += head + note;
      return;
    }
  }

  void change_call(Call& call) {
    u32 words[sizeof(Call) / 4];
    std::memcpy(words, &call, sizeof call);
    for (u64 times = 1 + below(2); times; --times)
      words[1 + below(sizeof(Call) / 4 - 1)] = static_cast<u32>(boundary(4096));
    std::memcpy(&call, words, sizeof call);
  }

  // libFuzzer's own mutations. They use values seen in comparisons.
  void change_bytes(std::string& elf) {
    const u64 size = elf.size();
    elf.resize(size + 64);
    elf.resize(LLVMFuzzerMutate(reinterpret_cast<u8*>(&elf[0]), size, elf.size()));
  }
};
}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  Mutator mutator{std::mt19937(seed)};
  if (size < sizeof(Call)) return LLVMFuzzerMutate(data, size, max_size);
  const Parts parts = split(data, size);
  Call call = parts.call;
  std::string elf(reinterpret_cast<const char*>(parts.elf), parts.elf_size);
  switch (mutator.below(8)) {
    case 0:
    case 1: mutator.change_call(call); break;
    case 2:
    case 3:
    case 4: mutator.change_table(elf); break;
    case 5:
    case 6: mutator.change_note(elf); break;
    case 7: mutator.change_bytes(elf); break;
  }
  if (mutator.one_in(40)) elf.resize(mutator.below(elf.size() + 1));
  const std::string changed = join(call, elf, parts.text);
  if (changed.size() > max_size) return size;
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
