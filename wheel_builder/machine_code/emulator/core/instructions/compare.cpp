// v_cmp and v_cmpx. One macro line defines all comparisons of one lane type.
#include "code/ops.hpp"

namespace emu {
namespace {
void finish(Wave& w, const Inst& in, u64 m, bool x) {
  m &= w.exec;
  if (in.ndst) write_mask(w, in.dst[0], m);
  if (x) w.set_exec(m);
}
template <class T, class F>
void compare(Wave& w, const Inst& in, bool x, F f) {
  alignas(64) typename T::T ta[kLanes], tb[kLanes];
  alignas(64) u32 d[kLanes];
  const auto *a = T::load(w, in.src[0], ta), *b = T::load(w, in.src[1], tb);
  lanes(w, [&](u32 i) { d[i] = f(a[i], b[i]) ? ~0u : 0u; });
  finish(w, in, pack_mask(w, d), x);
}
template <class T, class F>
void classify(Wave& w, const Inst& in, bool x, F f) {
  alignas(64) typename T::T ta[kLanes];
  alignas(64) u32 tb[kLanes];
  const auto* a = T::load(w, in.src[0], ta);
  const u32* b = U32::load(w, in.src[1], tb);
  u64 m = 0;
  for (u32 i = 0; i < w.n; ++i) m |= static_cast<u64>((f(a[i]) & b[i]) != 0) << i;
  finish(w, in, m, x);
}
#define CMP1(prefix, x, op, suffix, LT, expr)           \
  t.add({#prefix #op "_" #suffix,                       \
         [](Wave& w, const Inst& in) {                  \
           compare<LT>(w, in, x, [](LT::T a, LT::T b) { \
             (void)a;                                   \
             (void)b;                                   \
             return expr;                               \
           });                                          \
         },                                             \
         Class::valu,                                   \
         1,                                             \
         {LT::type},                                    \
         kIntClamp,                                     \
         nullptr})                                      \
      .follows(x ? flow::compare_exec : flow::compare);
#define CMP(op, suffix, LT, expr) \
  CMP1(v_cmp_, false, op, suffix, LT, expr) CMP1(v_cmpx_, true, op, suffix, LT, expr)
#define CMP_FLOAT(suffix, LT)             \
  CMP(f, suffix, LT, false)               \
  CMP(lt, suffix, LT, a < b)              \
  CMP(eq, suffix, LT, a == b)             \
  CMP(le, suffix, LT, a <= b)             \
  CMP(gt, suffix, LT, a > b)              \
  CMP(lg, suffix, LT, (a < b || a > b))   \
  CMP(ge, suffix, LT, a >= b)             \
  CMP(o, suffix, LT, (a == a && b == b))  \
  CMP(u, suffix, LT, (a != a || b != b))  \
  CMP(nge, suffix, LT, !(a >= b))         \
  CMP(nlg, suffix, LT, !(a < b || a > b)) \
  CMP(ngt, suffix, LT, !(a > b))          \
  CMP(nle, suffix, LT, !(a <= b))         \
  CMP(neq, suffix, LT, !(a == b))         \
  CMP(nlt, suffix, LT, !(a < b))          \
  CMP(tru, suffix, LT, true)              \
  CMP(t, suffix, LT, true)
#define CMP_INT(suffix, LT)   \
  CMP(f, suffix, LT, false)   \
  CMP(lt, suffix, LT, a < b)  \
  CMP(eq, suffix, LT, a == b) \
  CMP(le, suffix, LT, a <= b) \
  CMP(gt, suffix, LT, a > b)  \
  CMP(ne, suffix, LT, a != b) \
  CMP(ge, suffix, LT, a >= b) \
  CMP(t, suffix, LT, true)
#define CLASS(suffix, LT, types, f)                                                              \
  t.add({"v_cmp_class_" #suffix, [](Wave& w, const Inst& in) { classify<LT>(w, in, false, f); }, \
         Class::valu, 1, types, 0, nullptr})                                                     \
      .follows(flow::compare);                                                                   \
  t.add({"v_cmpx_class_" #suffix, [](Wave& w, const Inst& in) { classify<LT>(w, in, true, f); }, \
         Class::valu, 1, types, 0, nullptr})                                                     \
      .follows(flow::compare_exec);
u32 bits_class_f32(f32 x) { return class_f32(bits<u32>(x)); }
u32 bits_class_f64(f64 x) { return class_f64(bits<u64>(x)); }
}  // namespace

void add_compare(Ops& t) {
  CMP_FLOAT(f16, F16)
  CMP_FLOAT(f32, F32)
  CMP_FLOAT(f64, F64)
  CMP_INT(i16, I16)
  CMP_INT(u16, U16)
  CMP_INT(i32, I32)
  CMP_INT(u32, U32)
  CMP_INT(i64, I64)
  CMP_INT(u64, U64)
  CLASS(f32, F32, EMU_LIST(Type::f32, Type::b32), bits_class_f32)
  CLASS(f64, F64, EMU_LIST(Type::f64, Type::b32), bits_class_f64)
  CLASS(f16, H16, EMU_LIST(Type::f16, Type::b32), class_f16)
}
}  // namespace emu
