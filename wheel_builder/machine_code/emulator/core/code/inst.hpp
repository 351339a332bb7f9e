// One decoded instruction: the handler, its operands resolved to register numbers or constants, its
// modifiers.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/arch/traits.hpp"
#include "types.hpp"

namespace emu {
struct Wave;
struct Inst;
struct Program;
using Handler = void (*)(Wave&, const Inst&);

using fa::Gfx;

// Registers live in two arrays. Vector: v0.. at 0, a0.. at 256. Scalar: SGPRs at 0, the special ones below.
constexpr int kAcc = 256, kVgprs = 512;
constexpr int kVcc = 106, kTtmp = 108, kM0 = 124, kNull = 125, kExec = 126, kSgprs = 128;
// Base address in the buffer resource of private memory (48 bits, above any host address).
constexpr u64 kScratchResource = 0x0000fff000000000ull;
// Apertures of generic addresses: LDS and private memory.
constexpr u64 kSharedBase = 0x0001000000000000ull << 4, kPrivateBase = 0x0002000000000000ull << 4;

enum class Kind : u8 { none, vgpr, sgpr, constant, lanes, scc, vccz, execz };
enum OperandFlag : u8 { kNeg = 1, kAbs = 2, kSext = 4, kHigh = 8, kNegHi = 16, kHighHi = 32 };

struct Operand {
  Kind kind = Kind::none;
  u8 width = 1;  // dwords
  u8 flags = 0;  // OperandFlag. For packed operands kNeg/kHigh act on the low result half, kNegHi/kHighHi on
                 // the high one
  u16 index = 0;
  u64 value = 0;         // constant, in the operand's type
  u32* lanes = nullptr;  // Kind::lanes: 64 (or 128: low dwords, then high) words in place of a register.
                         // Kind::constant: the same, pre-broadcast
};

// How a constant in a source position becomes bits.
enum class Type : u8 { any, b32, f32, b16, f16, b64, f64, pk16, pkf16, mask };  // mask: a bit per lane

enum class Class : u8 { salu, valu, trans, matrix, lds, vmem, smem, scratch, branch, barrier, wait, end };
enum OpFlag : u32 {
  kDstIsSrc = 1,      // the destination is also the last source (fmac and friends)
  kKeepHigh = 2,      // a 16-bit result leaves the other half alone on gfx9 too
  kIntClamp = 4,      // handles `clamp` itself
  kNoOperands = 8,    // text after the mnemonic is skipped
  kImplicitVcc = 16,  // VOPD halves omit vcc from the text
  kPacked = 32,       // op_sel/op_sel_hi/neg_lo/neg_hi are per half
  kMix = 64,          // op_sel_hi chooses f16 sources (v_fma_mix*)
  kNoDst = 128,       // all register operands are sources (stores)
  kStore16 = 256,     // result is 16 bits wide
  kOpSelBits = 512,   // op_sel has another meaning than half selection (permlane)
  kReadsVcc = 1024,   // in addition to its operands
  kReadsScc = 2048,
  kSetsScc = 4096,
  kSccNonzero = 8192,     // SCC is whether the result is nonzero
  kToLds = 16384,         // `lds`: a load straight to LDS
  kNotSaturated = 32768,  // its result under FP16_OVFL is not implemented
  kFormats = 65536,       // cbsz and blgp name the formats of A and B
};

struct OpInfo {
  const char* name;
  Handler run;
  Class cls;
  u8 dsts;      // leading operands, written
  Type src[5];  // types of the sources, last one repeats
  u32 flags;
  void (*bind)(Program&, Inst&, const std::string& text);  // after parsing, derives the handler's data
  Handler flow = nullptr;  // propagation of undefined bits (flow.hpp). Ops::add sets the usual ones
  OpInfo& follows(Handler h) {
    flow = h;
    return *this;
  }
};
// The type of source k: the last one named repeats.
inline Type source_type(const OpInfo& op, size_t k) {
  Type t = op.src[0];
  for (size_t i = 1; i <= k && i < 5; ++i)
    if (op.src[i] != Type::any) t = op.src[i];
  return t;
}

enum class DstSel : u8 { byte0, byte1, byte2, byte3, word0, word1, dword };
struct Dpp {
  i8 src[kLanes];       // source lane or -1
  u64 enabled = ~0ull;  // lanes enabled for writing by row_mask and bank_mask
  bool bound_zero = false, fetch_inactive = false;
};
struct Sdwa {
  DstSel dst = DstSel::dword, src[2] = {DstSel::dword, DstSel::dword};
  u8 unused = 0;  // 0 pad, 1 sign extend, 2 preserve
};

struct Inst {
  Handler run = nullptr;
  const OpInfo* op = nullptr;
  Operand dst[2], src[5];
  u8 nsrc = 0, ndst = 0;
  bool clamp = false, keep_high = false;
  u8 omod = 0;         // 1: x2, 2: x4, 3: /2
  u8 op_sel_bits = 0;  // as written
  i32 offset = 0, offset1 = 0;
  u32 aux = 0;     // per class: cache/addressing bits, MFMA shape, simm16, v_bitop3's truth table, ...
  u32 target = 0;  // branch: index of the instruction
  u64 address = 0;
  u32 words[3] = {0, 0, 0};
  u32 size = 4;
  u32 text = 0;          // line number in Program::lines
  bool wrapped = false;  // `run` is the wrapper of DPP, SDWA or VOPD
  std::shared_ptr<Dpp> dpp;
  std::shared_ptr<Sdwa> sdwa;
  std::shared_ptr<Inst> dual;  // VOPD: the second half (this one is the first)
};

enum AuxBits : u32 {
  kOffen = 1,
  kIdxen = 2,
  kLds = 4,
  kGlc = 8,
  kAddr64 = 16,
  kSaddr = 32,
  kVaddr = 64,
  kHasSoff = 128
};

// `aux` with kFormats: A's format, B's, and op_sel_hi.
constexpr u32 kFormatOfB = 3, kHighSelected = 6;

struct Argument {
  u32 offset, size;
  std::string name, kind;
};

struct HiddenArg {
  std::string kind;
  u32 offset, size;
};

struct KernelInfo {
  std::string name;
  u64 entry = 0;
  u32 lds = 0, scratch = 0, kernarg = 0, rsrc1 = 0, rsrc2 = 0, rsrc3 = 0, properties = 0, preload = 0;
  u32 wave_size = 64, vgprs = 0, agprs = 0, max_threads = 1024;
  bool dynamic_stack = false;
  std::vector<HiddenArg> hidden;
  std::vector<Argument> args;  // explicit ones, if the metadata has them
};

struct Symbol {
  std::string name;
  u64 address, size;
};

struct Program {
  Gfx gfx{};
  u32 flags = 0;       // e_flags of the ELF header
  std::string target;  // target according to the metadata
  std::vector<Inst> code;
  std::vector<std::string> lines;
  std::unordered_map<u64, u32> at;  // address -> index
  std::vector<KernelInfo> kernels;
  std::vector<Symbol> symbols;  // functions and objects
  std::vector<u8> image;        // loaded segments, addressed by virtual address
  std::vector<std::unique_ptr<u32[]>> pool;
  std::vector<std::string> missing;        // "mnemonic: kernel+address: text"
  std::vector<const OpInfo*> missing_ops;  // owned placeholders
  bool gfx9() const { return fa::traits(gfx).family == fa::Family::cdna; }
  // Work item ids are packed in v0, otherwise in a register each.
  bool packed_ids() const { return fa::traits(gfx).packed_work_item_ids; }
  const KernelInfo* kernel(const std::string& name) const;
  std::string where(u64 address) const;  // "symbol+0x10"
};

const OpInfo* find_op(const std::string& base);
std::vector<std::string> all_ops();
}  // namespace emu
