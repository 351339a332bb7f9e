// The table of mnemonics. Each semantics file fills in its part, one line per mnemonic.
#pragma once
#include <deque>
#include <unordered_map>

#include "inst.hpp"
#include "wave.hpp"

namespace emu {
class Ops {
 public:
  void add(const OpInfo& info) {
    if (!by_name_.emplace(info.name, info).second)
      throw Error(std::string("mnemonic twice in the table: ") + info.name);
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
  std::unordered_map<std::string, OpInfo> by_name_;
};

void add_salu(Ops&);
void add_smem(Ops&);
void add_valu_int(Ops&);
void add_valu_float(Ops&);
void add_valu_half(Ops&);
void add_valu_double(Ops&);
void add_compare(Ops&);
void add_packed(Ops&);
void add_matrix(Ops&);
void add_cross(Ops&);
void add_lds(Ops&);
void add_vmem(Ops&);

// Element-wise lines: name, lane types of the result and the sources, expression in a, b, c; w and in are in
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
#define V1(name, D, A, expr) V1F(name, valu, D, A, 0, expr)
#define V2(name, D, A, B, expr) V2F(name, valu, D, A, B, 0, expr)
#define V3(name, D, A, B, C, expr) V3F(name, valu, D, A, B, C, 0, expr)
}  // namespace emu
