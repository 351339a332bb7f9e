#include "code/decode.hpp"

#include <algorithm>
#include <cstdlib>

#include "code/operand.hpp"
#include "code/syntax.hpp"

namespace emu {
namespace {
struct Decoder {
  Program& prog;
  Inst in;
  std::string text;  // whole instruction, for messages
  bool dpp = false, sdwa = false;
  std::vector<int> op_sel, op_sel_hi, neg_lo, neg_hi;
  Dpp d;
  Sdwa sd;
  int row_mask = 15, bank_mask = 15;
  bool broadcast = false;

  [[noreturn]] void bad(const std::string& what) { throw Error(what); }

  // ---- modifiers
  void dpp_source(const std::string& name, int n) {
    dpp = true;
    broadcast |= name == "row_bcast";
    for (int i = 0; i < kLanes; ++i) {
      int row = i & ~15, in_row = i & 15, src = -1;
      if (name == "row_shl")
        src = in_row + n < 16 ? i + n : -1;
      else if (name == "row_shr")
        src = in_row - n >= 0 ? i - n : -1;
      else if (name == "row_ror")
        src = row + ((in_row - n) & 15);
      else if (name == "row_share" || name == "row_newbcast")
        src = row + n;
      else if (name == "row_xmask")
        src = i ^ n;
      else if (name == "row_mirror")
        src = row + 15 - in_row;
      else if (name == "row_half_mirror")
        src = (i & ~7) + 7 - (i & 7);
      else if (name == "wave_shl")
        src = i + 1 < 64 ? i + 1 : -1;
      else if (name == "wave_shr")
        src = i - 1;
      else if (name == "wave_rol")
        src = (i + 1) & 63;
      else if (name == "wave_ror")
        src = (i - 1) & 63;
      else if (name == "row_bcast" && n == 15)
        src = i >= 16 ? row - 1 : -1;
      else if (name == "row_bcast" && n == 31)
        src = i >= 32 ? 31 : -1;
      else
        bad("DPP control '" + name + "' is not known");
      d.src[i] = static_cast<i8>(src);
    }
  }
  void dpp_table(const std::vector<int>& sel) {  // quad_perm (4) or dpp8 (8)
    dpp = true;
    int n = static_cast<int>(sel.size());
    for (int i = 0; i < kLanes; ++i)
      d.src[i] = static_cast<i8>((i & ~(n - 1)) + sel[static_cast<size_t>(i & (n - 1))]);
  }
  DstSel select(const std::string& s) {
    const char* names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
    for (u8 i = 0; i < 7; ++i)
      if (s == names[i]) return static_cast<DstSel>(i);
    bad("SDWA selection '" + s + "' is not known");
  }
  void flag(u32 f) { in.aux |= f; }

  void modifier(const std::string& m) {
    size_t colon = m.find(':');
    std::string name = m.substr(0, colon), arg = colon == std::string::npos ? "" : m.substr(colon + 1);
    int n = arg.empty() ? 0 : static_cast<int>(std::strtol(arg.c_str(), nullptr, 0));
    if (name == "offset")
      in.offset = arg[0] == 's' ? static_cast<i32>(in.words[0] & 0xffff) : n;  // swizzle(...)
    else if (name == "offset0")
      in.offset = n;
    else if (name == "offset1")
      in.offset1 = n;
    else if (name == "offen")
      flag(kOffen);
    else if (name == "idxen")
      flag(kIdxen);
    else if (name == "lds")
      flag(kLds);
    else if (name == "glc" || name == "sc0")
      flag(kGlc);
    else if (name == "gds" && in.op->cls == Class::barrier)
      return;
    else if (name == "th" && starts(arg, "TH_ATOMIC_") && ends(arg, "RETURN"))
      flag(kGlc);
    else if (name == "slc" || name == "dlc" || name == "sc1" || name == "nt" || name == "th" ||
             name == "scope")
      return;
    else if (name == "clamp")
      in.clamp = true;
    else if (name == "mul")
      in.omod = n == 2 ? 1 : 2;
    else if (name == "div")
      in.omod = 3;
    else if (name == "op_sel")
      op_sel = numbers(arg);
    else if (name == "op_sel_hi")
      op_sel_hi = numbers(arg);
    else if (name == "neg_lo")
      neg_lo = numbers(arg);
    else if (name == "neg_hi")
      neg_hi = numbers(arg);
    else if (name == "quad_perm" || name == "dpp8")
      dpp_table(numbers(arg));
    else if (starts(name, "row_") && name != "row_mask")
      dpp_source(name, n);
    else if (starts(name, "wave_"))
      dpp_source(name, n);
    else if (name == "row_mask")
      row_mask = n;
    else if (name == "bank_mask")
      bank_mask = n;
    else if (in.op->flags & kFormats && (name == "cbsz" || name == "blgp"))
      flag((static_cast<u32>(n) & 7) << (name == "blgp" ? kFormatOfB : 0));
    else if (name == "byte_sel")
      flag(8 * (static_cast<u32>(n) & 3));
    else if (name == "bitop3")
      flag(static_cast<u32>(n) & 0xff);
    else if (name == "bound_ctrl")
      d.bound_zero = true;
    else if (name == "fi")
      d.fetch_inactive = n != 0;
    else if (name == "dst_sel")
      sd.dst = select(arg);
    else if (name == "src0_sel")
      sd.src[0] = select(arg);
    else if (name == "src1_sel")
      sd.src[1] = select(arg);
    else if (name == "dst_unused")
      sd.unused = arg == "UNUSED_PAD" ? 0 : arg == "UNUSED_SEXT" ? 1 : 2;
    else
      bad("modifier '" + m + "' is not known");
  }

  // ---- op_sel and neg lists onto operands
  void apply_selections() {
    u32 f = in.op->flags;
    for (size_t i = 0; i < op_sel.size(); ++i) in.op_sel_bits |= static_cast<u8>(op_sel[i] << i);
    if (f & kFormats)
      for (size_t i = 0; i < 2; ++i)
        if (i >= op_sel_hi.size() || op_sel_hi[i]) flag(1u << (kHighSelected + i));
    if (f & (kOpSelBits | kFormats)) return;
    if (f & (kPacked | kMix)) {
      auto get = [](const std::vector<int>& v, size_t i, int other) { return i < v.size() ? v[i] : other; };
      for (size_t i = 0; i < in.nsrc; ++i) {
        u8& flags = in.src[i].flags;
        if (f & kPacked) flags &= static_cast<u8>(~(kNeg | kHigh));
        if (get(neg_lo, i, 0)) flags |= kNeg;
        if (get(neg_hi, i, 0)) flags |= kNegHi;
        if (get(op_sel, i, 0)) flags |= kHigh;
        if (get(op_sel_hi, i, f & kMix ? 0 : 1)) flags |= kHighHi;
      }
      if (f & kMix && op_sel.size() > 3 && op_sel[3]) in.dst[0].flags |= kHigh;
      return;
    }
    size_t nsrc = in.nsrc;
    for (size_t i = 0; i < op_sel.size(); ++i) {
      if (!op_sel[i]) continue;
      if (i + 1 == op_sel.size() && i >= nsrc)
        in.dst[0].flags |= kHigh;
      else if (i < nsrc)
        in.src[i].flags |= kHigh;
    }
    if (!neg_lo.empty() || !neg_hi.empty()) bad("neg_lo/neg_hi on an instruction that is not packed");
  }

  void wrap() {
    in.wrapped = dpp || sdwa;
    if (dpp) {
      if (broadcast && !prog.gfx9()) bad("row_bcast exists on gfx9 only");
      for (int i = 0; i < kLanes; ++i)
        if (!(row_mask >> (i / 16) & 1) || !(bank_mask >> (i / 4 % 4) & 1)) d.enabled &= ~(1ull << i);
      in.dpp = std::make_shared<Dpp>(d);
      in.run = run_dpp;
    }
    if (sdwa) {
      in.sdwa = std::make_shared<Sdwa>(sd);
      in.run = run_sdwa;
    }
  }

  std::string strip(std::string m) {
    for (const char* suffix : {"_e64_dpp", "_e32_dpp", "_dpp", "_sdwa", "_e32", "_e64"})
      if (ends(m, suffix)) {
        sdwa = std::string(suffix) == "_sdwa";
        m.resize(m.size() - std::string(suffix).size());
        break;
      }
    return m;
  }

  void missing(const std::string& mnemonic) {
    auto* placeholder = new OpInfo{
        strdup(mnemonic.c_str()), run_missing, Class::salu, 0, {}, kNoOperands, nullptr, flow::defined};
    prog.missing_ops.push_back(placeholder);
    in.op = placeholder;
    in.run = run_missing;
    prog.missing.push_back(mnemonic + ": " + prog.where(in.address) + ": " + text);
  }

  // One instruction (or half of a VOPD pair).
  void instruction(const std::string& s) {
    size_t sp = s.find_first_of(" \t");
    std::string mnemonic = s.substr(0, sp), rest = sp == std::string::npos ? "" : trim(s.substr(sp));
    std::string base = strip(mnemonic);
    const OpInfo* op = ops().find(base);
    if (!op) return missing(base);
    in.op = op;
    in.run = op->run;
    in.keep_high = !prog.gfx9() || (op->flags & kKeepHigh);
    if (op->flags & kNoOperands) {
      if (op->bind) op->bind(prog, in, rest);
      return;
    }
    Strings parts = split(rest, ','), words;
    if (!parts.empty()) {
      words = split(parts.back(), ' ');
      parts.back() = words[0];
      // The first word contains the modifiers of instructions without operands.
      for (size_t i = 1; i < words.size(); ++i)
        if (!words[i].empty()) modifier(words[i]);
    }
    if (op->flags & kImplicitVcc && starts(s, "v_") && in.dual) parts.push_back("vcc_lo");
    size_t dsts = op->dsts;
    if (op->cls == Class::vmem || op->cls == Class::scratch || op->cls == Class::lds) {
      if (base.find("atomic") != std::string::npos) dsts = in.aux & kGlc ? 1 : 0;
      if (in.aux & kLds) dsts = 0;
      if (in.aux & kLds && !(op->flags & kToLds)) bad("this load to LDS is not implemented");
    }
    if (starts(base, "v_cmpx_") && parts.size() == 2) dsts = 0;
    if (parts.size() < dsts) bad("too few operands");
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i < dsts) {
        in.dst[in.ndst++] = parse_operand(prog, in, parts[i], Type::b32);
      } else {
        if (in.nsrc == 5) bad("too many operands");
        Type type = source_type(*in.op, in.nsrc);
        in.src[in.nsrc++] = parse_operand(prog, in, parts[i], type);
      }
    }
    if (op->flags & kDstIsSrc) {
      in.src[in.nsrc] = in.dst[0];
      in.src[in.nsrc++].flags = in.dst[0].flags & kHigh;
    }
    apply_selections();
    if (in.clamp && op->dsts && !(op->flags & kIntClamp) && op->cls != Class::matrix) {
      Type t = op->src[0];
      if (t == Type::b32 || t == Type::b16 || t == Type::b64 || t == Type::pk16)
        bad("clamp is not supported here");
    }
    if (op->bind) op->bind(prog, in, rest);
    wrap();
  }
};

Inst decode_one(Program& prog, const std::string& text, u64 address, const u32* words, u32 size) {
  auto make = [&](const std::string& s, bool dual) {
    Decoder dec{prog, {}, text, false, false, {}, {}, {}, {}, {}, {}, 15, 15, false};
    dec.in.address = address;
    dec.in.size = size;
    std::copy(words, words + 3, dec.in.words);
    if (dual) dec.in.dual = std::make_shared<Inst>();
    dec.instruction(s);
    return dec.in;
  };
  size_t pair = text.find(" :: ");
  if (pair == std::string::npos) return make(text, false);
  std::string x = trim(text.substr(0, pair)), y = trim(text.substr(pair + 4));
  auto base = [](std::string s) { return "v_" + s.substr(7); };  // v_dual_
  Inst in = make(base(x), true);
  in.dual = std::make_shared<Inst>(make(base(y), true));
  in.dual->dual = nullptr;
  in.wrapped = true;
  in.run = run_dual;
  return in;
}

// An undecodable instruction counts as missing: all are reported at once, and running one fails.
Inst decode_or_note(Program& prog, const std::string& text, u64 address, const u32* words, u32 size) {
  try {
    return decode_one(prog, text, address, words, size);
  } catch (const Error& e) {
    Decoder dec{prog, {}, text + " (" + e.what() + ")", false, false, {}, {}, {}, {}, {}, {}, 15, 15, false};
    dec.in.address = address;
    dec.in.size = size;
    dec.missing(text.substr(0, text.find_first_of(" \t")));
    return dec.in;
  }
}
}  // namespace

void decode(const std::string& disassembly, Program& prog) {
  size_t pos = 0;
  while (pos < disassembly.size()) {
    size_t end = disassembly.find('\n', pos);
    if (end == std::string::npos) end = disassembly.size();
    std::string line = disassembly.substr(pos, end - pos);
    pos = end + 1;
    size_t comment = line.find("//");
    if (line.empty() || line[0] != '\t' || comment == std::string::npos) continue;
    std::string text = trim(line.substr(0, comment));
    const char* p = line.c_str() + comment + 2;
    char* q;
    u64 address = std::strtoull(p, &q, 16);
    u32 words[3] = {0, 0, 0}, n = 0;
    for (q += *q == ':'; *q == ' ';) {
      char* r;
      u64 x = std::strtoull(q, &r, 16);
      if (r - q != 9) break;  // a blank and eight digits. "<symbol>" ends the list
      if (n < 3) words[n] = static_cast<u32>(x);
      ++n;
      q = r;
    }
    if (n == 0) throw Error("no encoding in the disassembly line: " + line);
    prog.lines.push_back(text);
    Inst in = decode_or_note(prog, text, address, words, n * 4);
    in.text = static_cast<u32>(prog.lines.size() - 1);
    prog.at[address] = static_cast<u32>(prog.code.size());
    prog.code.push_back(std::move(in));
  }
  if (prog.code.empty()) throw Error("the disassembly holds no instruction");
  for (Inst& in : prog.code) {
    if (in.op->cls != Class::branch || !(in.aux & kHasSoff)) continue;
    auto it = prog.at.find(in.address + 4 + static_cast<u64>(static_cast<i64>(in.offset) * 4));
    if (it == prog.at.end())
      throw Error("branch target of '" + prog.lines[in.text] + "' is not an instruction");
    in.target = it->second;
  }
}

const Ops& ops() {
  static const Ops table = [] {
    Ops t;
    add_salu(t);
    add_control(t);
    add_smem(t);
    add_valu_int(t);
    add_valu_float(t);
    add_valu_half(t);
    add_valu_double(t);
    add_compare(t);
    add_packed(t);
    add_matrix(t);
    add_narrow_conversions(t);
    add_narrow_dots(t);
    add_cross(t);
    add_lds(t);
    add_vmem(t);
    return t;
  }();
  return table;
}

const OpInfo* find_op(const std::string& base) { return ops().find(base); }
std::vector<std::string> all_ops() {
  std::vector<std::string> names;
  for (auto& kv : ops().all()) names.push_back(kv.first);
  std::sort(names.begin(), names.end());
  return names;
}
}  // namespace emu
