#include "run/setup.hpp"

#include "checks/shadow.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace emu {
namespace {
// kernel_code_properties
constexpr u32 kPrivateBuffer = 1, kDispatchPtr = 2, kQueuePtr = 4, kKernargPtr = 8, kDispatchId = 16,
              kFlatScratchInit = 32, kPrivateSize = 64;

template <class T>
void put(std::vector<u8>& to, size_t at, T value) {
  if (to.size() < at + sizeof value) to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

u64 hidden_value(const Launch& l, const std::string& kind) {
  for (int axis = 0; axis < 3; ++axis) {
    char letter = static_cast<char>('x' + axis);
    if (kind == std::string("hidden_block_count_") + letter) return l.grid[axis];
    if (kind == std::string("hidden_group_size_") + letter) return l.block[axis];
  }
  if (kind == "hidden_grid_dims") return l.grid[2] * l.block[2] > 1 ? 3 : l.grid[1] * l.block[1] > 1 ? 2 : 1;
  if (kind == "hidden_dynamic_lds_size") return l.dynamic_lds;
  if (kind == "hidden_private_base") return kPrivateBase >> 32;
  if (kind == "hidden_shared_base") return kSharedBase >> 32;
  return 0;  // offsets and remainders are zero. Host calls, printf, heap and queues are absent here
}

// Compilers load past the end of the argument segment, up to its alignment of 16 bytes (the last three dwords
// by s_load_dwordx4). Runtimes take segments from a pool, so whole cache lines are readable.
constexpr size_t kKernargGranule = 64;
size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

void fill_packet(Launch& l) {
  l.packet.assign(64, 0);
  put<u16>(l.packet, 2, 3);
  for (size_t i = 0; i < 3; ++i) {
    put<u16>(l.packet, 4 + 2 * i, static_cast<u16>(l.block[i]));
    put<u32>(l.packet, 12 + 4 * i, l.grid[i] * l.block[i]);
  }
  put<u32>(l.packet, 24, l.kernel->scratch);
  put<u32>(l.packet, 28, static_cast<u32>(l.lds_size()));
  put<u64>(l.packet, 40, reinterpret_cast<u64>(l.kernarg.data()));
}

void own_buffer(Launch& l, const void* p, u64 size, const char* name) {
  Buffer b;
  b.base = reinterpret_cast<u64>(p);
  b.size = size;
  b.name = name;
  b.readonly = true;
  l.buffers.push_back(std::move(b));
}

// The hardware's limits, with two exceptions. Workgroups: each stores an outcome. The argument segment:
// unlimited in hardware (HIP: 4 KiB).
constexpr u32 kMaxThreads = 1024, kMaxKernarg = 65536, kMaxUserSgprs = 32;
constexpr u32 kMaxHalf = 65535;  // workgroups along y and z where their numbers share a register
constexpr u64 kMaxScratchOfWave = 8u << 20, kMaxGroups = 1u << 20;

std::string triple(const u32 (&n)[3]) {
  return std::to_string(n[0]) + " x " + std::to_string(n[1]) + " x " + std::to_string(n[2]);
}

u32 user_sgpr_count(const KernelInfo& k) {
  const std::pair<u32, u32> sizes[] = {{kPrivateBuffer, 4}, {kDispatchPtr, 2}, {kQueuePtr, 2},
                                       {kKernargPtr, 2},    {kDispatchId, 2},  {kFlatScratchInit, 2},
                                       {kPrivateSize, 1}};
  u32 count = k.preload & 0x7f;
  for (auto [bit, size] : sizes) count += k.properties & bit ? size : 0;
  return count;
}

void check_shape(const Launch& l, std::vector<std::string>& wrong) {
  const u32(&b)[3] = l.block, (&g)[3] = l.grid;
  bool small = b[0] <= kMaxThreads && b[1] <= kMaxThreads && b[2] <= kMaxThreads;
  u32 threads = small ? b[0] * b[1] * b[2] : 0;
  if (threads == 0 || threads > kMaxThreads)
    wrong.push_back("block of " + triple(b) + " threads (1 to 1024 are possible)");
  else if (threads > l.kernel->max_threads)
    wrong.push_back("block of " + std::to_string(threads) + " threads, the kernel was built for at most " +
                    std::to_string(l.kernel->max_threads));
  if (!g[0] || !g[1] || !g[2]) wrong.push_back("empty grid");
  for (int i = 0; i < 3; ++i)
    if (static_cast<u64>(g[i]) * b[i] > 0xffffffffu) {
      wrong.push_back("grid of " + triple(g) + " workgroups with " + triple(b) +
                      " threads (an axis has less than 2^32 threads)");
      return;
    }
  if (fa::traits(l.program->gfx).workgroup_ids_in_ttmps && (g[1] > kMaxHalf || g[2] > kMaxHalf))
    wrong.push_back("grid of " + triple(g) + " workgroups (y and z have 16 bits each on this arch)");
  // Two factors below 2^32 stay within 64 bits, three may overflow.
  u64 plane = static_cast<u64>(g[0]) * g[1], index_end = 1ull << 32;
  bool fits = plane < index_end && plane * g[2] < index_end;
  if (!fits)
    wrong.push_back("grid of " + triple(g) + " workgroups (less than 2^32 are possible)");
  else if (l.options.only_group < 0 && plane * g[2] > kMaxGroups)
    wrong.push_back("grid of " + triple(g) + " workgroups (the emulator runs up to " +
                    std::to_string(kMaxGroups) + " in one launch)");
}

bool contains(const char* name, const char* part) { return std::strstr(name, part) != nullptr; }
// By the types in its name. Older names of atomics lack them.
bool is_float(const Inst& in) {
  for (const char* type :
       {"_f16", "_f32", "_f64", "bf16", "_fp8", "_bf8", "_xf32", "fadd", "fmin", "fmax", "fcmp"})
    if (contains(in.op->name, type)) return true;
  return in.dual && is_float(*in.dual);
}
// fp32 instructions that flush denormals here, or have the same results with them. Matrix instructions and
// atomics of memory ignore MODE (LLVM's D87864: the latter have a mode of their own). Taken for granted: a
// conversion to bf16 flushes its sources, too.
bool flushes(const Inst& in) {
  const char* names[] = {
      "v_add_f32",     "v_sub_f32",       "v_subrev_f32",  "v_mul_f32",         "v_fma_f32",
      "v_fmac_f32",    "v_max_f32",       "v_min_f32",     "v_max3_f32",        "v_min3_f32",
      "v_pk_add_f32",  "v_pk_mul_f32",    "v_pk_fma_f32",  "v_exp_f32",         "v_log_f32",
      "v_rcp_f32",     "v_rcp_iflag_f32", "v_rsq_f32",     "v_sqrt_f32",        "v_mfma_",
      "v_cmp_",        "v_cmpx_",         "v_cvt_f32_i32", "v_cvt_f32_u32",     "v_cvt_i32_f32",
      "v_cvt_u32_f32", "v_cvt_f32_f16",   "v_cvt_f16_f32", "v_cvt_pk_bf16_f32", "buffer_atomic_",
      "global_atomic_"};
  const auto begins = [&](const char* name) {
    return std::strncmp(in.op->name, name, std::strlen(name)) == 0;
  };
  return std::any_of(std::begin(names), std::end(names), begins) && !contains(in.op->name, "_class_");
}
// Whether the instruction does in this float mode what it does on hardware.
bool has_mode(const Inst& in, u32 mode) {
  return !is_float(in) || (mode == kSingleFlushed && flushes(in) && (!in.dual || flushes(*in.dual)));
}
bool is_jump(const Inst& in) { return contains(in.op->name, "setpc") || contains(in.op->name, "swappc"); }

// The first instruction of the kernel that `lacks` something, or null. Called functions may be anywhere in
// the program.
template <class F>
const Inst* first(const Program& p, const KernelInfo& k, F lacks) {
  u64 begin = 0, end = ~u64{0};
  for (const Symbol& s : p.symbols)
    if (s.address == k.entry && s.size) begin = s.address, end = s.address + s.size;
  const auto inside = [&](const Inst& in) { return in.address >= begin && in.address < end; };
  const auto calls = [&](const Inst& in) { return inside(in) && is_jump(in); };
  const bool leaves = std::any_of(p.code.begin(), p.code.end(), calls);
  const auto wanted = [&](const Inst& in) { return (leaves || inside(in)) && lacks(in); };
  const auto found = std::find_if(p.code.begin(), p.code.end(), wanted);
  return found == p.code.end() ? nullptr : &*found;
}
const Inst* without_mode(const Program& p, const KernelInfo& k) {
  return first(p, k, [&](const Inst& in) { return !has_mode(in, float_mode(k)); });
}
void check_float_mode(const Launch& l, std::vector<std::string>& wrong) {
  const u32 mode = float_mode(*l.kernel);
  if (l.kernel->rsrc1 & kOverflowOfKernel)
    if (const Inst* in = not_saturated(*l.program, *l.kernel))
      wrong.push_back("FP16_OVFL is set; '" + l.program->lines[in->text] + "' is not implemented for it");
  if (mode == kDenormalsKept) return;
  if (const Inst* in = without_mode(*l.program, *l.kernel))
    wrong.push_back("float mode " + std::to_string(mode) + (mode & 15 ? "" : ", which flushes denormals") +
                    "; '" + l.program->lines[in->text] + "' may depend on it, and is implemented for " +
                    "round-to-nearest-even with denormals kept (" + std::to_string(kDenormalsKept) +
                    ") only");
}

void check_kernel(const Launch& l, std::vector<std::string>& wrong) {
  const KernelInfo& k = *l.kernel;
  auto limit = [&](u64 found, const char* what, u64 most) {
    if (found > most)
      wrong.push_back(std::to_string(found) + what + " (" + std::to_string(most) + " are possible)");
  };
  limit(l.lds_size(), " bytes of LDS", static_cast<u64>(fa::traits(l.program->gfx).lds_bytes));
  limit(static_cast<u64>(k.scratch) * k.wave_size, " bytes of scratch in a wave", kMaxScratchOfWave);
  limit(std::max<u64>(k.kernarg, l.kernarg.size()), " bytes of arguments", kMaxKernarg);
  limit(user_sgpr_count(k), " user SGPRs", kMaxUserSgprs);
  check_float_mode(l, wrong);
  u64 preload_end = k.preload & 0x7f ? 4 * ((k.preload & 0x7f) + (k.preload >> 7 & 0x1ff)) : 0;
  if (preload_end > std::max<u64>(k.kernarg, l.kernarg.size()))
    wrong.push_back("arguments preloaded up to byte " + std::to_string(preload_end) + ", there are " +
                    std::to_string(k.kernarg));
}

struct Seeder {
  std::mt19937_64 rng;
  u32 next() { return static_cast<u32>(rng()); }
};

constexpr u32 next_garbage(u32 x) { return x * 1664525u + 1013904223u; }
// Fills all vector registers with the numbers following `x`, one by one, and returns the last. A block of
// numbers is made at once: each is `factor * x + more` of the number one block earlier.
u32 fill_registers(Wave& w, u32 x) {
  constexpr u32 kAtOnce = 32;
  u32 next[kAtOnce], factor = 1, more = 0;
  for (u32& n : next) {
    n = x = next_garbage(x);
    more = next_garbage(more);
    factor *= 1664525u;
  }
  u32* out = &w.v[0][0];
  for (u32 i = 0; i < kVgprs * kLanes; i += kAtOnce)
    for (u32 k = 0; k < kAtOnce; ++k) {
      out[i + k] = next[k];
      next[k] = next[k] * factor + more;
    }
  return out[kVgprs * kLanes - 1];
}

// Number of SGPRs set: user SGPRs in their fixed order, then workgroup ids, then the scratch wave offset.
u32 user_sgprs(Wave& w, const KernelInfo& k, const Launch& l) {
  u32 n = 0;
  auto push64 = [&](u64 x) {
    w.s[n++] = static_cast<u32>(x);
    w.s[n++] = static_cast<u32>(x >> 32);
  };
  u32 p = k.properties;
  if (p & kPrivateBuffer) {
    push64(kScratchResource);
    push64(0x00e0000000000000ull | ~0u);
  }
  if (p & kDispatchPtr) push64(reinterpret_cast<u64>(l.packet.data()));
  if (p & kQueuePtr) push64(0);
  if (p & kKernargPtr) push64(reinterpret_cast<u64>(l.kernarg.data()));
  if (p & kDispatchId) push64(1);
  if (p & kFlatScratchInit) push64(0);
  if (p & kPrivateSize) w.s[n++] = k.scratch;
  u32 length = k.preload & 0x7f, offset = k.preload >> 7 & 0x1ff;
  for (u32 i = 0; i < length; ++i) std::memcpy(&w.s[n++], l.kernarg.data() + 4 * (offset + i), 4);
  return n;
}

// A workgroup's number, and the wave's number in it, where a launch has them in trap registers (RDNA4
// ISA 3.x).
void workgroup_ttmps(Wave& w, const Group& g) {
  constexpr u32 kYzValid = 1u << 30, kWaveShift = 25;
  w.s[kTtmp + 7] = g.id[1] | g.id[2] << 16;
  w.s[kTtmp + 8] = kYzValid | w.index << kWaveShift;
  w.s[kTtmp + 9] = g.id[0];
}

u32 registers(Wave& w, const Group& g, u32 first_thread) {
  const Launch& l = *g.launch;
  const KernelInfo& k = *l.kernel;
  const fa::ArchTraits arch = fa::traits(l.program->gfx);
  user_sgprs(w, k, l);
  u32 n = k.rsrc2 >> 1 & 31;
  if (arch.workgroup_ids_in_ttmps) workgroup_ttmps(w, g);
  for (u32 i = 0; i < 3 && !arch.workgroup_ids_in_ttmps; ++i)
    if (k.rsrc2 >> (7 + i) & 1) w.s[n++] = g.id[i];
  if (k.rsrc2 >> 10 & 1) w.s[n++] = 0;
  if ((k.rsrc2 & 1) && !arch.architected_flat_scratch) w.s[n++] = 0;
  for (u32 i = 0; i < w.n; ++i) {
    u32 t = first_thread + i;
    u32 x = t % l.block[0], y = t / l.block[0] % l.block[1], z = t / l.block[0] / l.block[1];
    if (l.program->packed_ids()) {
      w.v[0][i] = x | y << 10 | z << 20;
    } else {
      u32 dims = k.rsrc2 >> 11 & 3;
      w.v[0][i] = x;
      if (dims >= 1) w.v[1][i] = y;
      if (dims >= 2) w.v[2][i] = z;
    }
  }
  return n;
}

void modes(Wave& w, const KernelInfo& k) {
  const bool chosen = fa::traits(w.program->gfx).nan_modes;
  w.mode = float_mode(k) | (k.rsrc1 & kOverflowOfKernel ? kOverflowMode : 0);
  w.flushes = float_mode(k) == kSingleFlushed;
  w.saturates = w.mode & kOverflowMode;
  w.dx10_clamp = !chosen || (k.rsrc1 >> 21 & 1);
  w.ieee = !chosen || (k.rsrc1 >> 23 & 1);
}
}  // namespace

const Inst* not_saturated(const Program& p, const KernelInfo& k) {
  return first(p, k, [](const Inst& in) {
    return in.op->flags & kNotSaturated || (in.dual && in.dual->op->flags & kNotSaturated);
  });
}

u32 vgprs_allocated(const Program& p, const KernelInfo& k) {
  u32 granule = static_cast<u32>(fa::traits(p.gfx).vgpr_encoding_granule);
  return std::min<u32>(kVgprs, ((k.rsrc1 & 63) + 1) * granule);
}

void check_launch(const Launch& l) {
  std::vector<std::string> wrong;
  check_shape(l, wrong);
  check_kernel(l, wrong);
  if (wrong.empty()) return;
  std::string all;
  for (const std::string& one : wrong) all += (all.empty() ? "" : "; ") + one;
  throw Error("launch of '" + l.kernel->name + "': " + all);
}

void prepare_launch(Launch& l) {
  check_launch(l);
  const KernelInfo& k = *l.kernel;
  l.kernarg.resize(round_up(std::max<size_t>(l.kernarg.size(), k.kernarg), kKernargGranule));
  for (const HiddenArg& h : k.hidden) {
    u64 v = hidden_value(l, h.kind);
    std::memcpy(l.kernarg.data() + h.offset, &v, std::min<u32>(h.size, 8));
  }
  fill_packet(l);
  own_buffer(l, l.kernarg.data(), std::max<size_t>(l.kernarg.size(), 1), "kernarg");
  own_buffer(l, l.packet.data(), l.packet.size(), "dispatch packet");
  l.image = const_cast<u8*>(l.program->image.data());
  own_buffer(l, l.image, l.program->image.size(), "code object");
  std::sort(l.buffers.begin(), l.buffers.end(),
            [](const Buffer& a, const Buffer& b) { return a.base < b.base; });
  for (Buffer& b : l.buffers) {
    b.shadowed = !b.readonly && (l.check(Check::uninit) || l.check(Check::race));
    if (b.shadowed && l.check(Check::uninit)) b.undefined.assign(b.size, !b.initialised);
  }
  for (const Inst& in : l.program->code)
    l.alone |= in.op->cls == Class::vmem && std::strstr(in.op->name, "atomic");
  l.counts.assign(l.program->code.size(), 0);
  l.lanes_active.assign(l.program->code.size(), 0);
  l.outcomes.assign(l.program->code.size(), 0);
}

void start_group(Group& g, u64 seed) {
  Launch& l = *g.launch;
  const KernelInfo& k = *l.kernel;
  Seeder garbage{std::mt19937_64(seed)};
  u32 threads = l.block[0] * l.block[1] * l.block[2], waves = (threads + k.wave_size - 1) / k.wave_size;
  // Clears the remains of an earlier launch with other checks.
  g.lds.assign(l.lds_size(), 0);
  for (size_t i = 0; i + 4 <= g.lds.size(); i += 4) put<u32>(g.lds, i, garbage.next());
  g.lds_undefined.assign(l.check(Check::uninit) ? g.lds.size() : 0, 1);
  g.lds_history.resize(l.check(Check::race) ? (g.lds.size() + 3) / 4 : 0);
  g.next_lds_epoch();
  g.lds_told.clear();
  if (!l.alone) g.forget_touched();
  g.last_page = ~0ull;
  g.report = {};
  if (l.options.record) l.recorded.assign(waves, {});
  while (g.waves.size() < waves) g.waves.emplace_back(new Wave);
  for (u32 i = 0; i < waves; ++i) {
    Wave& w = *g.waves[i];
    w.index = i;
    w.clock.start(g.linear, i);
    w.n = k.wave_size;
    w.all = w.n == 64 ? ~0ull : 0xffffffffull;
    w.group = &g;
    w.launch = &l;
    w.program = l.program;
    w.lds = g.lds.data();
    w.lds_size = static_cast<u32>(g.lds.size());
    w.state = State::running;
    w.executed = 0;
    w.last_buffer = nullptr;
    w.undefined_bytes = w.stored_undefined = 0;
    w.signalled = w.lds_since_signal = w.lds_noted = false;
    w.origin = 0;
    w.scc = garbage.next() & 1;
    // Registers hold garbage dependent on the seed: reading an unwritten one shows.
    u32 fill = fill_registers(w, garbage.next());
    for (u32& x : w.s) x = garbage.next();
    w.s[kNull] = 0;
    modes(w, k);
    u32 here = std::min(w.n, threads - i * w.n);
    w.launched = here == 64 ? ~0ull : (1ull << here) - 1;
    w.set_exec(w.launched);
    w.scratch_size = k.scratch;
    w.scratch.resize(static_cast<size_t>(k.scratch) * w.n);
    for (u8& b : w.scratch) b = static_cast<u8>(fill = next_garbage(fill));
    w.scratch_undefined.assign(l.check(Check::uninit) ? w.scratch.size() : 0, 1);
    u32 sgprs = registers(w, g, i * w.n);
    if (l.check(Check::uninit))
      start_shadow(w, sgprs);
    else
      w.shadow.reset();
    w.record = nullptr;
    if (l.options.record) w.record = &l.recorded[i];
    u64 entry = k.entry + (k.preload & 0x7f ? 256 : 0);
    auto it = l.program->at.find(entry);
    if (it == l.program->at.end())
      throw Error("kernel '" + k.name + "': its entry is not in the disassembly");
    w.pc = w.next = it->second;
  }
  g.waves.resize(waves);
}
}  // namespace emu
