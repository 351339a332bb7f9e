// Scalar arithmetic, and reads of hardware registers.
#include <type_traits>

#include "code/ops.hpp"
#include "run/launch.hpp"

namespace emu {
namespace {
i32 simm16(const Operand& o) { return static_cast<i16>(o.value); }
// The 16-bit constant of s_cmpk: sign-extended for signed comparisons.
template <class T>
T constant16(const Operand& o) {
  return std::is_signed<T>::value ? static_cast<T>(simm16(o)) : static_cast<T>(o.value & 0xffffu);
}
u32 count_leading_same(
    u32 x) {  // s_flbit_i32: position of the first bit different from the sign, -1 for none
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

void jump(Wave& w, const Inst& in, u64 to) {
  auto it = w.program->at.find(to - code_base(w));
  if (it == w.program->at.end())
    fail(w, in, "jump to an address that is not an instruction of this code object");
  w.next = it->second;
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

#define SOP(name, types, flags, body)  \
  t.add({#name,                        \
         [](Wave& w, const Inst& in) { \
           (void)w;                    \
           (void)in;                   \
           body                        \
         },                            \
         Class::salu, 1, types, kIntClamp | (flags), nullptr})
#define T32 EMU_LIST(Type::b32)
#define T64 EMU_LIST(Type::b64)
#define T64_32 EMU_LIST(Type::b64, Type::b32)
// r = expr over a, b. SCC: kept, whether r is nonzero, or an expression over a, b, r.
#define KEEP w.scc, 0
#define NZ (r != 0), kSetsScc | kSccNonzero
#define SCC(x) x, kSetsScc
#define S32(name, expr, scc) S32_(name, expr, scc)
#define S64(name, expr, scc) S64_(name, expr, scc)
#define S64_32(name, expr, scc) S64_32_(name, expr, scc)
#define S32_(name, expr, value, flags)                                                                    \
  SOP(name, T32, flags, u32 a = read_s32(w, in.src[0]); u32 b = read_s32(w, in.src[1]); (void)a; (void)b; \
      u32 r = expr; write_s32(w, in.dst[0], r); w.scc = value;)
#define S64_(name, expr, value, flags)                                                                    \
  SOP(name, T64, flags, u64 a = read_s64(w, in.src[0]); u64 b = read_s64(w, in.src[1]); (void)a; (void)b; \
      u64 r = expr; write_s64(w, in.dst[0], r); w.scc = value;)
#define S64_32_(name, expr, value, flags)                                                           \
  SOP(name, T64_32, flags, u64 a = read_s64(w, in.src[0]); u32 b = read_s32(w, in.src[1]); (void)b; \
      u64 r = expr; write_s64(w, in.dst[0], r); w.scc = value;)
// The undefined bits of a bitwise expression.
#define SBITS(expr)                                       \
  [](Wave& s, const Inst& in) {                           \
    flow::scalar_bitwise(s, in, [](u64 a, u64 b) -> u64 { \
      (void)b;                                            \
      return expr;                                        \
    });                                                   \
  }
// For both widths. After an OR, SCC counts as undefined even if a defined 1 decides it.
#define LOGIC(name, expr, flow)            \
  S32(name##_b32, expr, NZ).follows(flow); \
  S64(name##_b64, expr, NZ).follows(flow)
#define SCMP(name, T, expr)                              \
  t.add({#name,                                          \
         [](Wave& w, const Inst& in) {                   \
           T a = static_cast<T>(read_s32(w, in.src[0])); \
           T b = static_cast<T>(read_s32(w, in.src[1])); \
           w.scc = expr;                                 \
         },                                              \
         Class::salu, 0, T32, kSetsScc, nullptr})
#define SCMPK(name, T, expr)                             \
  t.add({#name,                                          \
         [](Wave& w, const Inst& in) {                   \
           T a = static_cast<T>(read_s32(w, in.src[0])); \
           T b = constant16<T>(in.src[1]);               \
           w.scc = expr;                                 \
         },                                              \
         Class::salu, 0, T32, kSetsScc, nullptr})
#define SIGNED_OVER(a, b, r) ((~((a) ^ (b)) & ((a) ^ (r))) >> 31)
#define SIGNED_UNDER(a, b, r) ((((a) ^ (b)) & ((a) ^ (r))) >> 31)

void add_scalar_arithmetic(Ops& t) {
  S32(s_add_u32, a + b, SCC(r < a));
  S32(s_sub_u32, a - b, SCC(b > a));
  S32(s_add_i32, a + b, SCC(SIGNED_OVER(a, b, r)));
  S32(s_sub_i32, a - b, SCC(SIGNED_UNDER(a, b, r)));
  SOP(s_addc_u32, T32, kReadsScc | kSetsScc,
      u64 r = static_cast<u64>(read_s32(w, in.src[0])) + read_s32(w, in.src[1]) + w.scc;
      write_s32(w, in.dst[0], static_cast<u32>(r)); w.scc = r >> 32;);
  SOP(s_subb_u32, T32, kReadsScc | kSetsScc,
      u64 r = static_cast<u64>(read_s32(w, in.src[0])) - read_s32(w, in.src[1]) - w.scc;
      write_s32(w, in.dst[0], static_cast<u32>(r)); w.scc = r >> 63;);
  S32(s_min_i32, static_cast<i32>(a) < static_cast<i32>(b) ? a : b,
      SCC(static_cast<i32>(a) < static_cast<i32>(b)));
  // SCC of equal operands: early editions of the ISA documents have >, the later ones >=.
  S32(s_max_i32, static_cast<i32>(a) >= static_cast<i32>(b) ? a : b,
      SCC(static_cast<i32>(a) >= static_cast<i32>(b)));
  S32(s_min_u32, a < b ? a : b, SCC(a < b));
  S32(s_max_u32, a >= b ? a : b, SCC(a >= b));
  S64(s_add_nc_u64, a + b, KEEP);
  S64(s_sub_nc_u64, a - b, KEEP);
  S64(s_mul_u64, a * b, KEEP);
  S32(s_mul_i32, a * b, KEEP);
  S32(s_mul_hi_u32, static_cast<u32>(static_cast<u64>(a) * b >> 32), KEEP);
  S32(s_mul_hi_i32, static_cast<u32>(static_cast<i64>(static_cast<i32>(a)) * static_cast<i32>(b) >> 32),
      KEEP);
  S32(s_absdiff_i32, static_cast<i32>(a - b) < 0 ? b - a : a - b, NZ);  // the difference wraps
  S32(s_lshl1_add_u32, (a << 1) + b, SCC((static_cast<u64>(a) << 1) + b > 0xffffffffu));
  S32(s_lshl2_add_u32, (a << 2) + b, SCC((static_cast<u64>(a) << 2) + b > 0xffffffffu));
  S32(s_lshl3_add_u32, (a << 3) + b, SCC((static_cast<u64>(a) << 3) + b > 0xffffffffu));
  S32(s_lshl4_add_u32, (a << 4) + b, SCC((static_cast<u64>(a) << 4) + b > 0xffffffffu));
  S32(s_abs_i32, static_cast<i32>(a) < 0 ? 0u - a : a, NZ);
  SOP(s_movk_i32, T32, 0, write_s32(w, in.dst[0], static_cast<u32>(simm16(in.src[0]))););
  SOP(s_cmovk_i32, T32, kReadsScc | kDstIsSrc,
      if (w.scc) write_s32(w, in.dst[0], static_cast<u32>(simm16(in.src[0]))););
  SOP(s_addk_i32, T32, kSetsScc | kDstIsSrc, u32 a = read_s32(w, in.dst[0]);
      u32 b = static_cast<u32>(simm16(in.src[0])); u32 r = a + b; write_s32(w, in.dst[0], r);
      w.scc = SIGNED_OVER(a, b, r););
  SOP(s_mulk_i32, T32, kDstIsSrc,
      write_s32(w, in.dst[0], read_s32(w, in.dst[0]) * static_cast<u32>(simm16(in.src[0]))););
}

void add_scalar_logic(Ops& t) {
  LOGIC(s_and, a & b, SBITS(a & b));
  LOGIC(s_or, a | b, flow::scalar_moves<0b11>);
  LOGIC(s_xor, a ^ b, SBITS(a ^ b));
  LOGIC(s_andn2, a & ~b, SBITS(a & ~b));
  // Compilers write `mask | ~exec`: lanes switched off have a 1, for any value of the mask.
  LOGIC(s_orn2, a | ~b, SBITS(a | ~b));
  LOGIC(s_nand, ~(a & b), SBITS(~(a & b)));
  LOGIC(s_nor, ~(a | b), SBITS(a ^ b));
  LOGIC(s_xnor, ~(a ^ b), SBITS(~(a ^ b)));
  LOGIC(s_not, ~a, SBITS(~a));
  S32(s_lshl_b32, a << (b & 31), NZ).follows(flow::scalar_moves<>);
  S32(s_lshr_b32, a >> (b & 31), NZ).follows(flow::scalar_moves<>);
  S32(s_ashr_i32, static_cast<u32>(static_cast<i32>(a) >> (b & 31)), NZ).follows(flow::scalar_moves<>);
  S64_32(s_lshl_b64, a << (b & 63), NZ).follows(flow::scalar_moves<>);
  S64_32(s_lshr_b64, a >> (b & 63), NZ).follows(flow::scalar_moves<>);
  S64_32(s_ashr_i64, static_cast<u64>(static_cast<i64>(a) >> (b & 63)), NZ).follows(flow::scalar_moves<>);
  S32(s_bfm_b32, static_cast<u32>(bfm(a & 31, b & 31)), KEEP);
  SOP(s_bfm_b64, T32, 0,
      write_s64(w, in.dst[0], bfm(read_s32(w, in.src[0]) & 63, read_s32(w, in.src[1]) & 63)););
  S32(s_bfe_u32, (bfe<u32, u32>(a, b, false)), NZ).follows(flow::scalar_moves<>);
  S32(s_bfe_i32, static_cast<u32>(bfe<u32, i32>(static_cast<i32>(a), b, true)), NZ)
      .follows(flow::scalar_moves<>);
  S64_32(s_bfe_u64, (bfe<u64, u64>(a, b, false)), NZ).follows(flow::scalar_moves<>);
  S64_32(s_bfe_i64, static_cast<u64>(bfe<u64, i64>(static_cast<i64>(a), b, true)), NZ)
      .follows(flow::scalar_moves<>);
  S32(s_pack_ll_b32_b16, (a & 0xffffu) | b << 16, KEEP).follows(flow::scalar_moves<0b11>);
  S32(s_pack_lh_b32_b16, (a & 0xffffu) | (b & 0xffff0000u), KEEP).follows(flow::scalar_moves<0b11>);
  S32(s_pack_hh_b32_b16, a >> 16 | (b & 0xffff0000u), KEEP).follows(flow::scalar_moves<0b11>);
  S32(s_pack_hl_b32_b16, a >> 16 | b << 16, KEEP).follows(flow::scalar_moves<0b11>);
  S32(s_brev_b32, reverse_bits(a), KEEP).follows(flow::scalar_moves<>);
  S32(s_bcnt0_i32_b32, static_cast<u32>(__builtin_popcount(~a)), NZ);
  S32(s_bcnt1_i32_b32, static_cast<u32>(__builtin_popcount(a)), NZ);
  SOP(s_bcnt0_i32_b64, T64, kSetsScc | kSccNonzero,
      u32 r = static_cast<u32>(__builtin_popcountll(~read_s64(w, in.src[0])));
      write_s32(w, in.dst[0], r); w.scc = r != 0;);
  SOP(s_bcnt1_i32_b64, T64, kSetsScc | kSccNonzero,
      u32 r = static_cast<u32>(__builtin_popcountll(read_s64(w, in.src[0])));
      write_s32(w, in.dst[0], r); w.scc = r != 0;);
  S32(s_ff1_i32_b32, a ? static_cast<u32>(__builtin_ctz(a)) : ~0u, KEEP);
  S32(s_flbit_i32_b32, a ? static_cast<u32>(__builtin_clz(a)) : ~0u, KEEP);
  S32(s_flbit_i32, count_leading_same(a), KEEP);
  SOP(s_ff1_i32_b64, T64, 0, u64 a = read_s64(w, in.src[0]);
      write_s32(w, in.dst[0], a ? static_cast<u32>(__builtin_ctzll(a)) : ~0u););
  SOP(s_flbit_i32_b64, T64, 0, u64 a = read_s64(w, in.src[0]);
      write_s32(w, in.dst[0], a ? static_cast<u32>(__builtin_clzll(a)) : ~0u););
  S32(s_sext_i32_i8, static_cast<u32>(static_cast<i32>(static_cast<i8>(a))), KEEP)
      .follows(flow::scalar_moves<>);
  S32(s_sext_i32_i16, static_cast<u32>(static_cast<i32>(static_cast<i16>(a))), KEEP)
      .follows(flow::scalar_moves<>);
  SOP(s_bitset0_b32, T32, kDstIsSrc,
      write_s32(w, in.dst[0], read_s32(w, in.dst[0]) & ~(1u << (read_s32(w, in.src[0]) & 31))););
  SOP(s_bitset1_b32, T32, kDstIsSrc,
      write_s32(w, in.dst[0], read_s32(w, in.dst[0]) | 1u << (read_s32(w, in.src[0]) & 31)););
  SOP(s_bitset0_b64, T32, kDstIsSrc,
      write_s64(w, in.dst[0], read_s64(w, in.dst[0]) & ~(1ull << (read_s32(w, in.src[0]) & 63))););
  SOP(s_bitset1_b64, T32, kDstIsSrc,
      write_s64(w, in.dst[0], read_s64(w, in.dst[0]) | 1ull << (read_s32(w, in.src[0]) & 63)););
  SOP(s_wqm_b32, T32, kSetsScc | kSccNonzero, u32 a = read_s32(w, in.src[0]); u32 r = 0;
      for (u32 q = 0; q < 32; q += 4) if (a >> q & 15) r |= 15u << q; write_s32(w, in.dst[0], r);
      w.scc = r != 0;);
}

void add_moves(Ops& t) {
  S32(s_mov_b32, a, KEEP).follows(flow::scalar_moves<>);
  S64(s_mov_b64, a, KEEP).follows(flow::scalar_moves<>);
  SOP(s_cmov_b32, T32, kReadsScc | kDstIsSrc, if (w.scc) write_s32(w, in.dst[0], read_s32(w, in.src[0])););
  SOP(s_cmov_b64, T64, kReadsScc | kDstIsSrc, if (w.scc) write_s64(w, in.dst[0], read_s64(w, in.src[0])););
  S32(s_cselect_b32, w.scc ? a : b, KEEP).follows(flow::select);
  S64(s_cselect_b64, w.scc ? a : b, KEEP).follows(flow::select);
  SOP(s_getpc_b64, T64, 0, write_s64(w, in.dst[0], code_base(w) + in.address + in.size);)
      .follows(flow::defined);
  SOP(s_setpc_b64, T64, 0, jump(w, in, read_s64(w, in.dst[0]));).follows(flow::jump);
  SOP(s_swappc_b64, T64, 0, u64 to = read_s64(w, in.src[0]);
      write_s64(w, in.dst[0], code_base(w) + in.address + in.size); jump(w, in, to);)
      .follows(flow::jump);
  SOP(s_getreg_b32, T32, 0, u32 spec = static_cast<u32>(in.src[0].value);
      u32 x = get_register(w, in, spec & 63) >> (spec >> 6 & 31); u32 width = (spec >> 11 & 31) + 1;
      write_s32(w, in.dst[0], width == 32 ? x : x & ((1u << width) - 1));)
      .follows(flow::defined);
  SOP(s_memtime, T64, 0, write_s64(w, in.dst[0], w.executed);).follows(flow::defined);
  SOP(s_memrealtime, T64, 0, write_s64(w, in.dst[0], w.executed);).follows(flow::defined);
}

void add_exec(Ops& t) {
#define EXEC_OF(expr)       \
  [](u64 s, u64 e) -> u64 { \
    (void)s;                \
    (void)e;                \
    return expr;            \
  }
#define EXEC_FLOW(expr) [](Wave& s, const Inst& in) { flow::set_exec(s, in, EXEC_OF(expr)); }
#define SAVEEXEC(name, expr)                                                          \
  SOP(s_##name##_saveexec_b32, T32, kSetsScc, saveexec(w, in, false, EXEC_OF(expr));) \
      .follows(EXEC_FLOW(expr));                                                      \
  SOP(s_##name##_saveexec_b64, T64, kSetsScc, saveexec(w, in, true, EXEC_OF(expr));).follows(EXEC_FLOW(expr))
  SAVEEXEC(and, s & e);
  SAVEEXEC(or, s | e);
  SAVEEXEC(xor, s ^ e);
  SAVEEXEC(andn2, s & ~e);
  SAVEEXEC(andn1, ~s & e);
  SAVEEXEC(orn2, s | ~e);
  SAVEEXEC(orn1, ~s | e);
  SAVEEXEC(nand, ~(s & e));
  SAVEEXEC(nor, ~(s | e));
  SAVEEXEC(xnor, ~(s ^ e));
#define WREXEC(name, expr)                                                                             \
  SOP(s_##name##_b32, T32, kSetsScc, u64 s = read_s32(w, in.src[0]); u64 e = w.exec; w.set_exec(expr); \
      w.scc = w.exec != 0; write_s32(w, in.dst[0], static_cast<u32>(w.exec));)                         \
      .follows(EXEC_FLOW(expr));                                                                       \
  SOP(s_##name##_b64, T64, kSetsScc, u64 s = read_s64(w, in.src[0]); u64 e = w.exec; w.set_exec(expr); \
      w.scc = w.exec != 0; write_s64(w, in.dst[0], w.exec);)                                           \
      .follows(EXEC_FLOW(expr))
  WREXEC(andn1_wrexec, ~s & e);
  WREXEC(andn2_wrexec, s & ~e);
}

void add_compares(Ops& t) {
#define SCMP_ALL(op, expr)             \
  SCMP(s_cmp_##op##_i32, i32, expr);   \
  SCMP(s_cmp_##op##_u32, u32, expr);   \
  SCMPK(s_cmpk_##op##_i32, i32, expr); \
  SCMPK(s_cmpk_##op##_u32, u32, expr);
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
         Class::salu, 0, T64, kSetsScc, nullptr});
  SCMP64(s_cmp_eq_u64, a == b)
  SCMP64(s_cmp_lg_u64, a != b)
#define SBIT(name, R, T, expr)             \
  t.add({#name,                            \
         [](Wave& w, const Inst& in) {     \
           auto a = R(w, in.src[0]);       \
           u32 b = read_s32(w, in.src[1]); \
           w.scc = expr;                   \
         },                                \
         Class::salu, 0, T, kSetsScc, nullptr});
  SBIT(s_bitcmp0_b32, read_s32, T32, !(a >> (b & 31) & 1))
  SBIT(s_bitcmp1_b32, read_s32, T32, (a >> (b & 31) & 1))
  SBIT(s_bitcmp0_b64, read_s64, T64_32, !(a >> (b & 63) & 1))
  SBIT(s_bitcmp1_b64, read_s64, T64_32, (a >> (b & 63) & 1))
}

// Floats of the scalar unit (RDNA 3.5 and later), with the vector unit's rounding, denormals and saturation.
#define SFLOAT1(name, D, A, expr)                          \
  SOP(name, T32, 0, A a = bits<A>(read_s32(w, in.src[0])); \
      write_s32(w, in.dst[0], bits<u32>(static_cast<D>(expr)));)
#define SFLOAT2(name, expr)                                                                               \
  SOP(name, T32, 0, f32 a = bits<f32>(read_s32(w, in.src[0])); f32 b = bits<f32>(read_s32(w, in.src[1])); \
      write_s32(w, in.dst[0], bits<u32>(expr));)
#define SCMPF(op, expr)                               \
  t.add({"s_cmp_" #op "_f32",                         \
         [](Wave& w, const Inst& in) {                \
           f32 a = bits<f32>(read_s32(w, in.src[0])); \
           f32 b = bits<f32>(read_s32(w, in.src[1])); \
           w.scc = expr;                              \
         },                                           \
         Class::salu, 0, T32, kSetsScc, nullptr})

// Transcendentals of the vector unit on scalar registers (RDNA 4), independent of EXEC.
#define VSCALAR(name, expr)                                                                        \
  t.add({#name,                                                                                    \
         [](Wave& w, const Inst& in) {                                                             \
           const Operand& o = in.src[0];                                                           \
           const u32 given = read_s32(w, o), keep = o.flags & kAbs ? 0x7fffffffu : ~0u;            \
           const f32 a = bits<f32>((given & keep) ^ (o.flags & kNeg ? 0x80000000u : 0));           \
           write_s32(w, in.dst[0], bits<u32>(modify<f32>(expr, in.omod, in.clamp, w.dx10_clamp))); \
         },                                                                                        \
         Class::trans,                                                                             \
         1,                                                                                        \
         {Type::f32},                                                                              \
         0,                                                                                        \
         nullptr})                                                                                 \
      .follows(flow::scalar)

void add_floats(Ops& t) {
  VSCALAR(v_s_exp_f32, exp2_f32(a));
  VSCALAR(v_s_log_f32, log2_f32(a));
  VSCALAR(v_s_rcp_f32, rcp_f32(a));
  VSCALAR(v_s_rsq_f32, rsq_f32(a));
  VSCALAR(v_s_sqrt_f32, sqrt_f32(a));
  SFLOAT2(s_add_f32, a + b);
  SFLOAT2(s_sub_f32, a - b);
  SFLOAT2(s_mul_f32, a * b);
  SFLOAT2(s_max_num_f32, pick_f32(a, b, true, false));
  SFLOAT2(s_min_num_f32, pick_f32(a, b, false, false));
  SFLOAT1(s_cvt_i32_f32, i32, f32, to_i32(a));
  SFLOAT1(s_cvt_u32_f32, u32, f32, to_u32(a));
  SFLOAT1(s_cvt_f32_i32, f32, i32, a);
  SFLOAT1(s_cvt_f32_u32, f32, u32, a);
  SCMPF(lt, a < b);
  SCMPF(eq, a == b);
  SCMPF(le, a <= b);
  SCMPF(gt, a > b);
  SCMPF(ge, a >= b);
  SCMPF(lg, a < b || a > b);
  SCMPF(o, a == a && b == b);
  SCMPF(u, a != a || b != b);
  SCMPF(nge, !(a >= b));
  SCMPF(nlg, !(a < b || a > b));
  SCMPF(ngt, !(a > b));
  SCMPF(nle, !(a <= b));
  SCMPF(neq, a != b);
  SCMPF(nlt, !(a < b));
}

}  // namespace

void add_salu(Ops& t) {
  add_scalar_arithmetic(t);
  add_scalar_logic(t);
  add_moves(t);
  add_exec(t);
  add_compares(t);
  add_floats(t);
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
  t.alias("s_add_co_u32", "s_add_u32");
  t.alias("s_sub_co_u32", "s_sub_u32");
  t.alias("s_add_co_i32", "s_add_i32");
  t.alias("s_sub_co_i32", "s_sub_i32");
  t.alias("s_add_co_ci_u32", "s_addc_u32");
  t.alias("s_sub_co_ci_u32", "s_subb_u32");
  t.alias("s_addk_co_i32", "s_addk_i32");
}
}  // namespace emu
