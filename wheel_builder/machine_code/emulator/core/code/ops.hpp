// The table of mnemonics. Each semantics file fills in its part, one line per mnemonic.
#pragma once
#include <deque>
#include <unordered_map>

#include "checks/flow.hpp"
#include "code/inst.hpp"
#include "run/wave.hpp"

namespace emu {
class Ops {
 public:
  // A line without a flow of undefined bits gets the usual flow of its class.
  OpInfo& add(const OpInfo& info) {
    auto [slot, is_new] = by_name_.emplace(info.name, info);
    if (!is_new) throw Error(std::string("mnemonic twice in the table: ") + info.name);
    if (!info.flow) slot->second.flow = usual_flow(info.cls);
    return slot->second;
  }
  void alias(const char* name, const char* of) {
    OpInfo copy = by_name_.at(of);
    copy.name = name;
    add(copy);
  }
  OpInfo& at(const char* name) { return by_name_.at(name); }
  const OpInfo* find(const std::string& name) const {
    auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &it->second;
  }
  const std::unordered_map<std::string, OpInfo>& all() const { return by_name_; }

 private:
  static Handler usual_flow(Class c) {
    switch (c) {
      case Class::valu:
      case Class::trans: return flow::any;
      case Class::salu: return flow::scalar;
      case Class::lds: return flow::lds_address;
      case Class::vmem:
      case Class::scratch:
      case Class::smem: return flow::address<>;
      default: return flow::defined;
    }
  }
  std::unordered_map<std::string, OpInfo> by_name_;
};

void add_salu(Ops&);
void add_control(Ops&);
void add_smem(Ops&);
void add_valu_int(Ops&);
void add_valu_float(Ops&);
void add_valu_half(Ops&);
void add_valu_double(Ops&);
void add_compare(Ops&);
void add_packed(Ops&);
void add_matrix(Ops&);
void add_narrow_conversions(Ops&);
void add_narrow_dots(Ops&);
void add_cross(Ops&);
void add_lds(Ops&);
void add_vmem(Ops&);

// Element-wise lines: name, lane types of the result and the sources, expression in a, b, c. w and in are in
// scope.
#define EMU_OP(name, cls, srcs, flags, body) \
  t.add({#name,                              \
         [](Wave& w, const Inst& in) {       \
           (void)w;                          \
           (void)in;                         \
           body                              \
         },                                  \
         Class::cls, 1, srcs, flags, nullptr})
#define EMU_LIST(...) {__VA_ARGS__}
#define V1F(name, cls, D, A, flags, expr) \
  EMU_OP(name, cls, EMU_LIST(A::type), flags, (map1<D, A>(w, in, [&](A::T a) -> D::T { return expr; }));)
#define V2F(name, cls, D, A, B, flags, expr)           \
  EMU_OP(name, cls, EMU_LIST(A::type, B::type), flags, \
         (map2<D, A, B>(w, in, [&](A::T a, B::T b) -> D::T { return expr; }));)
#define V3F(name, cls, D, A, B, C, flags, expr)                 \
  EMU_OP(name, cls, EMU_LIST(A::type, B::type, C::type), flags, \
         (map3<D, A, B, C>(w, in, [&](A::T a, B::T b, C::T c) -> D::T { return expr; }));)
// Bitwise lines: the flow of undefined bits follows from the expression.
#define EMU_BITS(expr)                                    \
  [](Wave& s, const Inst& in) {                           \
    flow::bitwise(s, in, [](u32 a, u32 b, u32 c) -> u32 { \
      (void)b;                                            \
      (void)c;                                            \
      return expr;                                        \
    });                                                   \
  }
#define BITS1(name, T, flags, expr) V1F(name, valu, T, T, flags, expr).follows(EMU_BITS(expr))
#define BITS2(name, T, flags, expr) V2F(name, valu, T, T, T, flags, expr).follows(EMU_BITS(expr))
#define BITS3(name, T, flags, expr) V3F(name, valu, T, T, T, T, flags, expr).follows(EMU_BITS(expr))
#define V1(name, D, A, expr) V1F(name, valu, D, A, 0, expr)
#define V2(name, D, A, B, expr) V2F(name, valu, D, A, B, 0, expr)
#define V3(name, D, A, B, C, expr) V3F(name, valu, D, A, B, C, 0, expr)
}  // namespace emu
