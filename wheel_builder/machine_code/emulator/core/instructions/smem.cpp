// Scalar loads.
#include "code/ops.hpp"
#include "instructions/transfer.hpp"

namespace emu {
namespace {
u64 scalar_offset(Wave& w, const Inst& in) {  // text: base, offset-or-register [offset:imm]
  u64 off = static_cast<u64>(static_cast<i64>(in.offset));
  if (in.nsrc > 1) {
    const Operand& o = in.src[1];
    off += o.kind == Kind::constant ? static_cast<u64>(static_cast<i64>(static_cast<i32>(o.value)))
                                    : read_s32(w, o);
  }
  return off;
}
void write_dwords(Wave& w, const Inst& in, const u32* x, u32 n) {
  u64 undefined = std::exchange(w.undefined_bytes, 0);
  Operand o = in.dst[0];
  for (u32 d = 0; d < n; ++d, ++o.index) {
    write_s32(w, o, x[d]);
    if (w.shadow) write_s32(*w.shadow, o, bytes_to_bits(undefined >> (4 * d)));
  }
}
template <u32 kDwords>
void s_load(Wave& w, const Inst& in) {
  u64 a = (read_s64(w, in.src[0]) + scalar_offset(w, in)) & ~3ull;
  u32 x[16] = {0};
  if (const u8* p = global({w, in, 0}, a, 4 * kDwords, Mode::read)) std::memcpy(x, p, 4 * kDwords);
  write_dwords(w, in, x, kDwords);
}
template <u32 kDwords>
void s_buffer_load(Wave& w, const Inst& in) {
  const u32* r = w.s + in.src[0].index;
  u64 base = r[0] | static_cast<u64>(r[1] & 0xffff) << 32, off = scalar_offset(w, in) & ~3ull;
  u32 stride = r[1] >> 16 & 0x3fff, x[16] = {0};
  u64 limit = stride ? static_cast<u64>(stride) * r[2] : r[2];
  for (u32 d = 0; d < kDwords; ++d) {
    if (off + 4 * d + 4 > limit) continue;
    if (const u8* p = global({w, in, 0}, base + off + 4 * d, 4, Mode::read)) std::memcpy(x + d, p, 4);
  }
  write_dwords(w, in, x, kDwords);
}
void add(Ops& t, const char* old_name, const char* new_name, Handler h, Type src0) {
  t.add({old_name, h, Class::smem, 1, {src0, Type::b32}, 0, nullptr});
  t.alias(new_name, old_name);
}
}  // namespace

void add_smem(Ops& t) {
  add(t, "s_load_dword", "s_load_b32", s_load<1>, Type::b64);
  add(t, "s_load_dwordx2", "s_load_b64", s_load<2>, Type::b64);
  t.add({"s_load_b96", s_load<3>, Class::smem, 1, {Type::b64, Type::b32}, 0, nullptr});
  add(t, "s_load_dwordx4", "s_load_b128", s_load<4>, Type::b64);
  add(t, "s_load_dwordx8", "s_load_b256", s_load<8>, Type::b64);
  add(t, "s_load_dwordx16", "s_load_b512", s_load<16>, Type::b64);
  add(t, "s_buffer_load_dword", "s_buffer_load_b32", s_buffer_load<1>, Type::b32);
  add(t, "s_buffer_load_dwordx2", "s_buffer_load_b64", s_buffer_load<2>, Type::b32);
  t.add({"s_buffer_load_b96", s_buffer_load<3>, Class::smem, 1, {Type::b32, Type::b32}, 0, nullptr});
  add(t, "s_buffer_load_dwordx4", "s_buffer_load_b128", s_buffer_load<4>, Type::b32);
  add(t, "s_buffer_load_dwordx8", "s_buffer_load_b256", s_buffer_load<8>, Type::b32);
  add(t, "s_buffer_load_dwordx16", "s_buffer_load_b512", s_buffer_load<16>, Type::b32);
}
}  // namespace emu
