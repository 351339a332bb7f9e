#include "code/operand.hpp"

#include "code/syntax.hpp"

namespace emu {
namespace {
u64 constant(const std::string& s, Type type) {
  bool hex = starts(s, "0x") || starts(s, "-0x");
  bool fp = !hex && s.find('.') != std::string::npos;
  bool wide = type == Type::b64 || type == Type::f64;
  if (fp) {
    f64 d = std::strtod(s.c_str(), nullptr);
    if (wide) return bits<u64>(d);
    f32 f = std::strtof(s.c_str(), nullptr);
    if (type == Type::b16 || type == Type::f16 || type == Type::pk16 || type == Type::pkf16)
      return float_to_half(f);
    return bits<u32>(f);
  }
  u64 x = s[0] == '-' ? 0 - std::strtoull(s.c_str() + 1, nullptr, 0) : std::strtoull(s.c_str(), nullptr, 0);
  if (type == Type::f64 && hex && (x >> 32) == 0) return x << 32;
  if (type == Type::b16 || type == Type::f16) return x & 0xffff;
  return wide ? x : x & 0xffffffffu;
}

struct Named {
  const char* name;
  u16 index;
  u8 width;
};
constexpr Named kNames[] = {{"vcc", kVcc, 2},
                            {"vcc_lo", kVcc, 1},
                            {"vcc_hi", kVcc + 1, 1},
                            {"exec", kExec, 2},
                            {"exec_lo", kExec, 1},
                            {"exec_hi", kExec + 1, 1},
                            {"m0", kM0, 1},
                            {"null", kNull, 1},
                            {"flat_scratch", 102, 2},
                            {"flat_scratch_lo", 102, 1},
                            {"flat_scratch_hi", 103, 1},
                            {"xnack_mask", 104, 2},
                            {"xnack_mask_lo", 104, 1},
                            {"xnack_mask_hi", 105, 1}};

u32* broadcast(Program& prog, u64 value) {
  prog.pool.emplace_back(new u32[2 * kLanes + 16]);
  u32* p = prog.pool.back().get();
  while (reinterpret_cast<std::uintptr_t>(p) % 64) ++p;
  for (int i = 0; i < kLanes; ++i) {
    p[i] = static_cast<u32>(value);
    p[i + kLanes] = static_cast<u32>(value >> 32);
  }
  return p;
}

bool register_range(const std::string& s, Operand& o) {  // v1 v[1:2] a.. s.. ttmp..
  size_t letters = 0;
  while (letters < s.size() && s[letters] >= 'a' && s[letters] <= 'z') ++letters;
  std::string bank = s.substr(0, letters), rest = s.substr(letters);
  int base = bank == "v" ? 0 : bank == "a" ? kAcc : bank == "s" ? 0 : bank == "ttmp" ? kTtmp : -1;
  if (base < 0 || rest.empty()) return false;
  int lo, hi;
  if (rest[0] == '[') {
    lo = std::atoi(rest.c_str() + 1);
    size_t colon = rest.find(':');
    hi = colon == std::string::npos ? lo : std::atoi(rest.c_str() + colon + 1);
  } else if (rest[0] >= '0' && rest[0] <= '9') {
    lo = hi = std::atoi(rest.c_str());
  } else {
    return false;
  }
  if (ends(rest, ".h")) o.flags |= kHigh;
  o.kind = bank == "v" || bank == "a" ? Kind::vgpr : Kind::sgpr;
  o.index = static_cast<u16>(base + lo);
  o.width = static_cast<u8>(hi - lo + 1);
  return true;
}
}  // namespace

void set_constant(Program& prog, Operand& o, u64 value) {
  o.kind = Kind::constant;
  o.value = value;
  o.lanes = broadcast(prog, value);
}

Operand parse_operand(Program& prog, const Inst& in, std::string s, Type type) {
  Operand o;
  for (bool again = true; again;) {
    again = false;
    if (s[0] == '-' && !is_number(s)) {
      o.flags ^= kNeg;
      s = s.substr(1);
      again = true;
    } else if (s[0] == '|') {
      o.flags |= kAbs;
      s = s.substr(1, s.size() - 2);
      again = true;
    } else if (starts(s, "sext(")) {
      o.flags |= kSext;
      s = s.substr(5, s.size() - 6);
      again = true;
    } else if (starts(s, "neg(")) {
      o.flags ^= kNeg;
      s = s.substr(4, s.size() - 5);
      again = true;
    } else if (starts(s, "abs(")) {
      o.flags |= kAbs;
      s = s.substr(4, s.size() - 5);
      again = true;
    } else if (starts(s, "lit(")) {
      s = s.substr(4, s.size() - 5);
      again = true;
    } else if (starts(s, "lit64(")) {
      s = s.substr(6, s.size() - 7);
      again = true;
    }
  }
  if (s == "off") return o;
  for (auto& n : kNames)
    if (s == n.name) {
      o.kind = Kind::sgpr;
      o.index = n.index;
      o.width = n.width;
      return o;
    }
  if (s == "scc" || s == "src_scc")
    o.kind = Kind::scc;
  else if (s == "src_vccz")
    o.kind = Kind::vccz;
  else if (s == "src_execz")
    o.kind = Kind::execz;
  else if (s == "src_shared_base")
    set_constant(prog, o, kSharedBase);
  else if (s == "src_shared_limit")
    set_constant(prog, o, kSharedBase + 0xffffffffu);
  else if (s == "src_private_base")
    set_constant(prog, o, kPrivateBase);
  else if (s == "src_private_limit")
    set_constant(prog, o, kPrivateBase + 0xffffffffu);
  else if (starts(s, "hwreg("))
    set_constant(prog, o, in.words[0] & 0xffff);
  else if (starts(s, "gpr_idx("))
    set_constant(prog, o, in.words[0] >> 8 & 15);
  else if (is_number(s))
    set_constant(prog, o, constant(s, type));
  else if (!register_range(s, o))
    throw Error("operand '" + s + "' is not known");
  return o;
}
}  // namespace emu
