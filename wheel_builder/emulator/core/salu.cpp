// Scalar arithmetic, branches, barriers and the instructions that only steer the pipeline.
#include <type_traits>

#include "launch.hpp"
#include "ops.hpp"

namespace emu {
namespace {
i32 simm16(const Operand& o) { return static_cast<i16>(o.value); }

u32 reverse_bits(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
// The 16-bit constant of s_cmpk: sign-extended or not, as the comparison is.
template <class T>
T constant16(const Operand& o) {
  return std::is_signed<T>::value ? static_cast<T>(simm16(o)) : static_cast<T>(o.value & 0xffffu);
}
u32 count_leading_same(
    u32 x) {  // s_flbit_i32: position of the first bit that differs from the sign, -1 if none
  u32 y = x ^ (0u - (x >> 31));
  return y ? static_cast<u32>(__builtin_clz(y)) : ~0u;
}
u64 bfm(u32 width, u32 offset) { return ((1ull << width) - 1) << offset; }
template <class U, class S>
S bfe(S x, u32 spec, bool sign) {
  constexpr u32 size = sizeof(U) * 8;
  u32 offset = spec & (size - 1), width = spec >> 16 & 0x7f;
  if (width == 0) return 0;
  U r = static_cast<U>(x) >> offset;
  if (width < size) r &= (U{1} << width) - 1;
  if (sign && width < size && (r >> (width - 1) & 1)) r |= ~U{0} << width;
  if (sign && offset + width >= size) r = static_cast<U>(x >> offset);
  return static_cast<S>(r);
}

void branch_to(Wave& w, const Inst& in, bool taken) {
  if (taken) w.next = in.target;
}
void bind_branch(Program&, Inst& in, const std::string&) {
  in.offset = static_cast<i16>(in.words[0] & 0xffff);
  in.aux |= kHasSoff;
}
void jump(Wave& w, const Inst& in, u64 to) {
  auto it = w.program->at.find(to - code_base(w));
  if (it == w.program->at.end())
    fail(w, in, "jump to an address that is not an instruction of this code object");
  w.next = it->second;
}

// MODE: only round-to-nearest-even with denormals kept is implemented (what HIP kernels use).
constexpr u32 kModeDenormKept = 0xf0, kModeChecked = 0xff;
void set_mode(Wave& w, const Inst& in, u32 mode) {
  w.mode = mode;
  if ((mode & kModeChecked) != kModeDenormKept)
    fail(w, in,
         "float mode " + std::to_string(mode & kModeChecked) +
             " is not implemented; only round-to-nearest-even with denormals kept is");
}
u32 get_register(Wave& w, const Inst& in, u32 id) {
  switch (id) {
    case 1: return w.mode;
    case 15: return static_cast<u32>(kSharedBase >> 48) << 16 | static_cast<u32>(kPrivateBase >> 48);
    case 29: return static_cast<u32>(w.executed);  // shader cycles
    case 2:
    case 3:
    case 4:
    case 20:
    case 23:
    case 24: return 0;  // status, traps, hardware ids
  }
  fail(w, in, "hardware register " + std::to_string(id) + " is not modelled");
}

template <class Op>
void saveexec(Wave& w, const Inst& in, bool wide, Op op) {
  u64 old = w.exec, src = (wide ? read_s64(w, in.src[0]) : read_s32(w, in.src[0])) & w.all;
  u64 e = op(src, old) & w.all;
  if (wide)
    write_s64(w, in.dst[0], old);
  else
    write_s32(w, in.dst[0], static_cast<u32>(old));
  w.set_exec(e);
  w.scc = e != 0;
}

#define SOP(name, types, body)         \
  t.add({#name,                        \
         [](Wave& w, const Inst& in) { \
           (void)w;                    \
           (void)in;                   \
           body                        \
         },                            \
         Class::salu, 1, types, kIntClamp, nullptr});
#define T32 EMU_LIST(Type::b32)
#define T64 EMU_LIST(Type::b64)
#define T64_32 EMU_LIST(Type::b64, Type::b32)
// r = expr over 32-bit a, b; SCC = scc expression over a, b, r
#define S32(name, expr, sccx)                                                                      \
  SOP(name, T32, u32 a = read_s32(w, in.src[0]); u32 b = read_s32(w, in.src[1]); (void)a; (void)b; \
      u32 r = expr; write_s32(w, in.dst[0], r); w.scc = sccx;)
#define S64(name, expr, sccx)                                                                      \
  SOP(name, T64, u64 a = read_s64(w, in.src[0]); u64 b = read_s64(w, in.src[1]); (void)a; (void)b; \
      u64 r = expr; write_s64(w, in.dst[0], r); w.scc = sccx;)
#define S64_32(name, expr, sccx)                                                                  \
  SOP(name, T64_32, u64 a = read_s64(w, in.src[0]); u32 b = read_s32(w, in.src[1]); u64 r = expr; \
      write_s64(w, in.dst[0], r); w.scc = sccx;)
#define KEEP w.scc
#define NZ (r != 0)
#define SCMP(name, T, expr)                              \
  t.add({#name,                                          \
         [](Wave& w, const Inst& in) {                   \
           T a = static_cast<T>(read_s32(w, in.src[0])); \
           T b = static_cast<T>(read_s32(w, in.src[1])); \
           w.scc = expr;                                 \
         },                                              \
         Class::salu, 0, T32, 0, nullptr});
#define SCMPK(name, T, expr)                             \
  t.add({#name,                                          \
         [](Wave& w, const Inst& in) {                   \
           T a = static_cast<T>(read_s32(w, in.src[0])); \
           T b = constant16<T>(in.src[1]);               \
           w.scc = expr;                                 \
         },                                              \
         Class::salu, 0, T32, 0, nullptr});
#define SIGNED_OVER(a, b, r) ((~((a) ^ (b)) & ((a) ^ (r))) >> 31)
#define SIGNED_UNDER(a, b, r) ((((a) ^ (b)) & ((a) ^ (r))) >> 31)

void add_arithmetic(Ops& t) {
  S32(s_add_u32, a + b, r < a)
  S32(s_sub_u32, a - b, b > a)
  S32(s_add_i32, a + b, SIGNED_OVER(a, b, r))
  S32(s_sub_i32, a - b, SIGNED_UNDER(a, b, r))
  SOP(s_addc_u32, T32, u64 r = static_cast<u64>(read_s32(w, in.src[0])) + read_s32(w, in.src[1]) + w.scc;
      write_s32(w, in.dst[0], static_cast<u32>(r)); w.scc = r >> 32;)
  SOP(s_subb_u32, T32, u64 r = static_cast<u64>(read_s32(w, in.src[0])) - read_s32(w, in.src[1]) - w.scc;
      write_s32(w, in.dst[0], static_cast<u32>(r)); w.scc = r >> 63;)
  S32(s_min_i32, static_cast<i32>(a) < static_cast<i32>(b) ? a : b, static_cast<i32>(a) < static_cast<i32>(b))
  S32(s_max_i32, static_cast<i32>(a) > static_cast<i32>(b) ? a : b, static_cast<i32>(a) > static_cast<i32>(b))
  S32(s_min_u32, a < b ? a : b, a < b)
  S32(s_max_u32, a > b ? a : b, a > b)
  S32(s_mul_i32, a * b, KEEP)
  S32(s_mul_hi_u32, static_cast<u32>(static_cast<u64>(a) * b >> 32), KEEP)
  S32(s_mul_hi_i32, static_cast<u32>(static_cast<i64>(static_cast<i32>(a)) * static_cast<i32>(b) >> 32), KEEP)
  S32(s_absdiff_i32, static_cast<i32>(a) > static_cast<i32>(b) ? a - b : b - a, NZ)
  S32(s_lshl1_add_u32, (a << 1) + b, (static_cast<u64>(a) << 1) + b > 0xffffffffu)
  S32(s_lshl2_add_u32, (a << 2) + b, (static_cast<u64>(a) << 2) + b > 0xffffffffu)
  S32(s_lshl3_add_u32, (a << 3) + b, (static_cast<u64>(a) << 3) + b > 0xffffffffu)
  S32(s_lshl4_add_u32, (a << 4) + b, (static_cast<u64>(a) << 4) + b > 0xffffffffu)
  S32(s_abs_i32, static_cast<i32>(a) < 0 ? 0u - a : a, NZ)
  SOP(s_movk_i32, T32, write_s32(w, in.dst[0], static_cast<u32>(simm16(in.src[0])));)
  SOP(s_cmovk_i32, T32, if (w.scc) write_s32(w, in.dst[0], static_cast<u32>(simm16(in.src[0])));)
  SOP(s_addk_i32, T32, u32 a = read_s32(w, in.dst[0]); u32 b = static_cast<u32>(simm16(in.src[0]));
      u32 r = a + b; write_s32(w, in.dst[0], r); w.scc = SIGNED_OVER(a, b, r);)
  SOP(s_mulk_i32, T32, write_s32(w, in.dst[0], read_s32(w, in.dst[0]) * static_cast<u32>(simm16(in.src[0])));)
}

void add_logic(Ops& t) {
  S32(s_and_b32, a & b, NZ)
  S32(s_or_b32, a | b, NZ)
  S32(s_xor_b32, a ^ b, NZ)
  S32(s_andn2_b32, a & ~b, NZ)
  S32(s_orn2_b32, a | ~b, NZ)
  S32(s_nand_b32, ~(a & b), NZ)
  S32(s_nor_b32, ~(a | b), NZ)
  S32(s_xnor_b32, ~(a ^ b), NZ)
  S64(s_and_b64, a & b, NZ)
  S64(s_or_b64, a | b, NZ)
  S64(s_xor_b64, a ^ b, NZ)
  S64(s_andn2_b64, a & ~b, NZ)
  S64(s_orn2_b64, a | ~b, NZ)
  S64(s_nand_b64, ~(a & b), NZ)
  S64(s_nor_b64, ~(a | b), NZ)
  S64(s_xnor_b64, ~(a ^ b), NZ)
  S32(s_not_b32, ~a, NZ)
  S64(s_not_b64, ~a, NZ)
  S32(s_lshl_b32, a << (b & 31), NZ)
  S32(s_lshr_b32, a >> (b & 31), NZ)
  S32(s_ashr_i32, static_cast<u32>(static_cast<i32>(a) >> (b & 31)), NZ)
  S64_32(s_lshl_b64, a << (b & 63), NZ)
  S64_32(s_lshr_b64, a >> (b & 63), NZ)
  S64_32(s_ashr_i64, static_cast<u64>(static_cast<i64>(a) >> (b & 63)), NZ)
  S32(s_bfm_b32, static_cast<u32>(bfm(a & 31, b & 31)), KEEP)
  SOP(s_bfm_b64, T32, write_s64(w, in.dst[0], bfm(read_s32(w, in.src[0]) & 63, read_s32(w, in.src[1]) & 63));)
  S32(s_bfe_u32, (bfe<u32, u32>(a, b, false)), NZ)
  S32(s_bfe_i32, static_cast<u32>(bfe<u32, i32>(static_cast<i32>(a), b, true)), NZ)
  S64_32(s_bfe_u64, (bfe<u64, u64>(a, b, false)), NZ)
  S64_32(s_bfe_i64, static_cast<u64>(bfe<u64, i64>(static_cast<i64>(a), b, true)), NZ)
  S32(s_pack_ll_b32_b16, (a & 0xffffu) | b << 16, KEEP)
  S32(s_pack_lh_b32_b16, (a & 0xffffu) | (b & 0xffff0000u), KEEP)
  S32(s_pack_hh_b32_b16, a >> 16 | (b & 0xffff0000u), KEEP)
  S32(s_pack_hl_b32_b16, a >> 16 | b << 16, KEEP)
  S32(s_brev_b32, reverse_bits(a), KEEP)
  S32(s_bcnt0_i32_b32, static_cast<u32>(__builtin_popcount(~a)), NZ)
  S32(s_bcnt1_i32_b32, static_cast<u32>(__builtin_popcount(a)), NZ)
  SOP(s_bcnt0_i32_b64, T64, u32 r = static_cast<u32>(__builtin_popcountll(~read_s64(w, in.src[0])));
      write_s32(w, in.dst[0], r); w.scc = NZ;)
  SOP(s_bcnt1_i32_b64, T64, u32 r = static_cast<u32>(__builtin_popcountll(read_s64(w, in.src[0])));
      write_s32(w, in.dst[0], r); w.scc = NZ;)
  S32(s_ff1_i32_b32, a ? static_cast<u32>(__builtin_ctz(a)) : ~0u, KEEP)
  S32(s_flbit_i32_b32, a ? static_cast<u32>(__builtin_clz(a)) : ~0u, KEEP)
  S32(s_flbit_i32, count_leading_same(a), KEEP)
  SOP(s_ff1_i32_b64, T64, u64 a = read_s64(w, in.src[0]);
      write_s32(w, in.dst[0], a ? static_cast<u32>(__builtin_ctzll(a)) : ~0u);)
  SOP(s_flbit_i32_b64, T64, u64 a = read_s64(w, in.src[0]);
      write_s32(w, in.dst[0], a ? static_cast<u32>(__builtin_clzll(a)) : ~0u);)
  S32(s_sext_i32_i8, static_cast<u32>(static_cast<i32>(static_cast<i8>(a))), KEEP)
  S32(s_sext_i32_i16, static_cast<u32>(static_cast<i32>(static_cast<i16>(a))), KEEP)
  SOP(s_bitset0_b32, T32,
      write_s32(w, in.dst[0], read_s32(w, in.dst[0]) & ~(1u << (read_s32(w, in.src[0]) & 31)));)
  SOP(s_bitset1_b32, T32,
      write_s32(w, in.dst[0], read_s32(w, in.dst[0]) | 1u << (read_s32(w, in.src[0]) & 31));)
  SOP(s_bitset0_b64, T32,
      write_s64(w, in.dst[0], read_s64(w, in.dst[0]) & ~(1ull << (read_s32(w, in.src[0]) & 63)));)
  SOP(s_bitset1_b64, T32,
      write_s64(w, in.dst[0], read_s64(w, in.dst[0]) | 1ull << (read_s32(w, in.src[0]) & 63));)
  SOP(s_wqm_b32, T32, u32 a = read_s32(w, in.src[0]); u32 r = 0;
      for (u32 q = 0; q < 32; q += 4) if (a >> q & 15) r |= 15u << q; write_s32(w, in.dst[0], r); w.scc = NZ;)
}

void add_moves(Ops& t) {
  S32(s_mov_b32, a, KEEP)
  S64(s_mov_b64, a, KEEP)
  SOP(s_cmov_b32, T32, if (w.scc) write_s32(w, in.dst[0], read_s32(w, in.src[0]));)
  SOP(s_cmov_b64, T64, if (w.scc) write_s64(w, in.dst[0], read_s64(w, in.src[0]));)
  S32(s_cselect_b32, w.scc ? a : b, KEEP)
  S64(s_cselect_b64, w.scc ? a : b, KEEP)
  SOP(s_getpc_b64, T64, write_s64(w, in.dst[0], code_base(w) + in.address + in.size);)
  SOP(s_setpc_b64, T64, jump(w, in, read_s64(w, in.dst[0]));)
  SOP(s_swappc_b64, T64, u64 to = read_s64(w, in.src[0]);
      write_s64(w, in.dst[0], code_base(w) + in.address + in.size); jump(w, in, to);)
  SOP(s_getreg_b32, T32, u32 spec = static_cast<u32>(in.src[0].value);
      u32 x = get_register(w, in, spec & 63) >> (spec >> 6 & 31); u32 width = (spec >> 11 & 31) + 1;
      write_s32(w, in.dst[0], width == 32 ? x : x & ((1u << width) - 1));)
  SOP(s_memtime, T64, write_s64(w, in.dst[0], w.executed);)
  SOP(s_memrealtime, T64, write_s64(w, in.dst[0], w.executed);)
}

void write_register(Wave& w, const Inst& in, u32 value) {
  u32 spec = in.words[0] & 0xffff, id = spec & 63, offset = spec >> 6 & 31, width = (spec >> 11 & 31) + 1;
  if (id != 1) fail(w, in, "writing hardware register " + std::to_string(id) + " is not modelled");
  u32 mask = (width == 32 ? ~0u : (1u << width) - 1) << offset;
  set_mode(w, in, (w.mode & ~mask) | (value << offset & mask));
}

void add_exec(Ops& t) {
#define SAVEEXEC(name, expr)                                                  \
  SOP(s_##name##_saveexec_b32, T32, saveexec(w, in, false, [](u64 s, u64 e) { \
        (void)s;                                                              \
        (void)e;                                                              \
        return expr;                                                          \
      });)                                                                    \
  SOP(s_##name##_saveexec_b64, T64, saveexec(w, in, true, [](u64 s, u64 e) {  \
        (void)s;                                                              \
        (void)e;                                                              \
        return expr;                                                          \
      });)
  SAVEEXEC(and, s & e)
  SAVEEXEC(or, s | e)
  SAVEEXEC(xor, s ^ e)
  SAVEEXEC(andn2, s & ~e)
  SAVEEXEC(andn1, ~s & e)
  SAVEEXEC(orn2, s | ~e)
  SAVEEXEC(orn1, ~s | e)
  SAVEEXEC(nand, ~(s & e))
  SAVEEXEC(nor, ~(s | e))
  SAVEEXEC(xnor, ~(s ^ e))
#define WREXEC(name, expr)                                                                   \
  SOP(s_##name##_b32, T32, u64 s = read_s32(w, in.src[0]); u64 e = w.exec; w.set_exec(expr); \
      w.scc = w.exec != 0; write_s32(w, in.dst[0], static_cast<u32>(w.exec));)               \
  SOP(s_##name##_b64, T64, u64 s = read_s64(w, in.src[0]); u64 e = w.exec; w.set_exec(expr); \
      w.scc = w.exec != 0; write_s64(w, in.dst[0], w.exec);)
  WREXEC(andn1_wrexec, ~s & e)
  WREXEC(andn2_wrexec, s & ~e)
}

void add_compares(Ops& t) {
#define SCMP_ALL(op, expr)          \
  SCMP(s_cmp_##op##_i32, i32, expr) \
  SCMP(s_cmp_##op##_u32, u32, expr) SCMPK(s_cmpk_##op##_i32, i32, expr) SCMPK(s_cmpk_##op##_u32, u32, expr)
  SCMP_ALL(eq, a == b)
  SCMP_ALL(lg, a != b)
  SCMP_ALL(gt, a > b)
  SCMP_ALL(ge, a >= b)
  SCMP_ALL(lt, a < b)
  SCMP_ALL(le, a <= b)
#define SCMP64(name, expr)                                             \
  t.add({#name,                                                        \
         [](Wave& w, const Inst& in) {                                 \
           u64 a = read_s64(w, in.src[0]), b = read_s64(w, in.src[1]); \
           w.scc = expr;                                               \
         },                                                            \
         Class::salu, 0, T64, 0, nullptr});
  SCMP64(s_cmp_eq_u64, a == b)
  SCMP64(s_cmp_lg_u64, a != b)
#define SBIT(name, R, T, expr)             \
  t.add({#name,                            \
         [](Wave& w, const Inst& in) {     \
           auto a = R(w, in.src[0]);       \
           u32 b = read_s32(w, in.src[1]); \
           w.scc = expr;                   \
         },                                \
         Class::salu, 0, T, 0, nullptr});
  SBIT(s_bitcmp0_b32, read_s32, T32, !(a >> (b & 31) & 1))
  SBIT(s_bitcmp1_b32, read_s32, T32, (a >> (b & 31) & 1))
  SBIT(s_bitcmp0_b64, read_s64, T64_32, !(a >> (b & 63) & 1))
  SBIT(s_bitcmp1_b64, read_s64, T64_32, (a >> (b & 63) & 1))
}

void add_control(Ops& t) {
#define FLOW(name, cls, bindf, body)   \
  t.add({#name,                        \
         [](Wave& w, const Inst& in) { \
           (void)w;                    \
           (void)in;                   \
           body                        \
         },                            \
         Class::cls,                   \
         0,                            \
         {},                           \
         kNoOperands,                  \
         bindf});
  FLOW(s_branch, branch, bind_branch, branch_to(w, in, true);)
  FLOW(s_cbranch_scc0, branch, bind_branch, branch_to(w, in, !w.scc);)
  FLOW(s_cbranch_scc1, branch, bind_branch, branch_to(w, in, w.scc);)
  FLOW(s_cbranch_vccz, branch, bind_branch,
       branch_to(w, in, (w.s[kVcc] | (w.n == 64 ? w.s[kVcc + 1] : 0)) == 0);)
  FLOW(s_cbranch_vccnz, branch, bind_branch,
       branch_to(w, in, (w.s[kVcc] | (w.n == 64 ? w.s[kVcc + 1] : 0)) != 0);)
  FLOW(s_cbranch_execz, branch, bind_branch, branch_to(w, in, w.exec == 0);)
  FLOW(s_cbranch_execnz, branch, bind_branch, branch_to(w, in, w.exec != 0);)
  FLOW(s_barrier, barrier, nullptr, w.state = State::barrier; w.barrier_pc = w.pc;)
  FLOW(s_endpgm, end, nullptr, w.state = State::done;)
  FLOW(s_trap, end, nullptr, fail(w, in, "the kernel trapped (assertion or __builtin_trap)");)
  FLOW(
      s_setreg_b32, salu, [](Program&, Inst&, const std::string&) {},
      // FLAT_SCRATCH (gfx10): the base of private memory, which addresses here do not go through.
      if ((in.words[0] & 63) != 20 && (in.words[0] & 63) != 21) fail(w, in, "s_setreg_b32 is not modelled");)
  FLOW(s_setreg_imm32_b32, salu, nullptr, write_register(w, in, in.words[1]);)
  FLOW(s_round_mode, salu, nullptr, set_mode(w, in, (w.mode & ~0xfu) | (in.words[0] & 0xf));)
  FLOW(s_denorm_mode, salu, nullptr, set_mode(w, in, (w.mode & ~0xf0u) | (in.words[0] & 0xf) << 4);)
  for (const char* name : {"s_nop",
                           "s_waitcnt",
                           "s_waitcnt_vscnt",
                           "s_waitcnt_vmcnt",
                           "s_waitcnt_expcnt",
                           "s_waitcnt_lgkmcnt",
                           "s_waitcnt_depctr",
                           "s_delay_alu",
                           "s_clause",
                           "s_sleep",
                           "s_setprio",
                           "s_inst_prefetch",
                           "s_set_inst_prefetch_distance",
                           "s_code_end",
                           "s_sendmsg",
                           "s_icache_inv",
                           "s_dcache_inv",
                           "s_dcache_wb",
                           "s_gl1_inv",
                           "s_ttracedata",
                           "s_ttracedata_imm",
                           "s_version",
                           "s_sethalt",
                           "s_setkill",
                           "s_incperflevel",
                           "s_decperflevel",
                           "v_nop",
                           "v_pipeflush",
                           "buffer_gl0_inv",
                           "buffer_gl1_inv",
                           "buffer_wbl2",
                           "buffer_inv",
                           "buffer_wbinvl1",
                           "buffer_wbinvl1_vol",
                           "ds_nop"})
    t.add({name, [](Wave&, const Inst&) {}, Class::wait, 0, {}, kNoOperands, nullptr});
}
}  // namespace

void add_salu(Ops& t) {
  add_arithmetic(t);
  add_logic(t);
  add_moves(t);
  add_exec(t);
  add_compares(t);
  add_control(t);
  t.alias("s_and_not1_b32", "s_andn2_b32");
  t.alias("s_and_not1_b64", "s_andn2_b64");
  t.alias("s_or_not1_b32", "s_orn2_b32");
  t.alias("s_or_not1_b64", "s_orn2_b64");
  t.alias("s_and_not1_saveexec_b32", "s_andn2_saveexec_b32");
  t.alias("s_and_not1_saveexec_b64", "s_andn2_saveexec_b64");
  t.alias("s_and_not0_saveexec_b32", "s_andn1_saveexec_b32");
  t.alias("s_and_not0_saveexec_b64", "s_andn1_saveexec_b64");
  t.alias("s_or_not1_saveexec_b32", "s_orn2_saveexec_b32");
  t.alias("s_or_not1_saveexec_b64", "s_orn2_saveexec_b64");
  t.alias("s_or_not0_saveexec_b32", "s_orn1_saveexec_b32");
  t.alias("s_or_not0_saveexec_b64", "s_orn1_saveexec_b64");
  t.alias("s_and_not0_wrexec_b32", "s_andn1_wrexec_b32");
  t.alias("s_and_not0_wrexec_b64", "s_andn1_wrexec_b64");
  t.alias("s_and_not1_wrexec_b32", "s_andn2_wrexec_b32");
  t.alias("s_and_not1_wrexec_b64", "s_andn2_wrexec_b64");
  t.alias("s_ctz_i32_b32", "s_ff1_i32_b32");
  t.alias("s_ctz_i32_b64", "s_ff1_i32_b64");
  t.alias("s_clz_i32_u32", "s_flbit_i32_b32");
  t.alias("s_clz_i32_u64", "s_flbit_i32_b64");
  t.alias("s_cls_i32", "s_flbit_i32");
}
}  // namespace emu
