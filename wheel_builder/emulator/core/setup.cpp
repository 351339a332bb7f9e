#include "setup.hpp"

#include "shadow.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace emu {
namespace {
// kernel_code_properties
constexpr u32 kPrivateBuffer = 1, kDispatchPtr = 2, kQueuePtr = 4, kKernargPtr = 8, kDispatchId = 16,
              kFlatScratchInit = 32, kPrivateSize = 64;

bool architected_scratch(Gfx g) { return g == Gfx::gfx942 || g == Gfx::gfx1100; }
bool packed_ids(Gfx g) { return g == Gfx::gfx942 || g == Gfx::gfx1100; }

template <class T>
void put(std::vector<u8>& to, size_t at, T value) {
  if (to.size() < at + sizeof value) to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

u64 hidden_value(const Launch& l, const std::string& kind) {
  auto axis = [&](size_t prefix) { return kind[prefix] - 'x'; };
  if (kind.rfind("hidden_block_count_", 0) == 0) return l.grid[axis(19)];
  if (kind.rfind("hidden_group_size_", 0) == 0) return l.block[axis(18)];
  if (kind == "hidden_grid_dims") return l.grid[2] * l.block[2] > 1 ? 3 : l.grid[1] * l.block[1] > 1 ? 2 : 1;
  if (kind == "hidden_dynamic_lds_size") return l.dynamic_lds;
  if (kind == "hidden_private_base") return kPrivateBase >> 32;
  if (kind == "hidden_shared_base") return kSharedBase >> 32;
  return 0;  // offsets and remainders are zero; host calls, printf, heap and queues do not exist here
}

void fill_packet(Launch& l) {
  l.packet.assign(64, 0);
  put<u16>(l.packet, 2, 3);
  for (size_t i = 0; i < 3; ++i) {
    put<u16>(l.packet, 4 + 2 * i, static_cast<u16>(l.block[i]));
    put<u32>(l.packet, 12 + 4 * i, l.grid[i] * l.block[i]);
  }
  put<u32>(l.packet, 24, l.kernel->scratch);
  put<u32>(l.packet, 28, l.lds_size());
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

void check(const Launch& l) {
  const KernelInfo& k = *l.kernel;
  u64 threads = static_cast<u64>(l.block[0]) * l.block[1] * l.block[2];
  std::string all;
  if (threads == 0 || threads > 1024)
    all += "block of " + std::to_string(threads) + " threads (1 to 1024 are possible); ";
  else if (threads > k.max_threads)
    all += "block of " + std::to_string(threads) + " threads, the kernel was built for at most " +
           std::to_string(k.max_threads) + "; ";
  if (!l.grid[0] || !l.grid[1] || !l.grid[2]) all += "empty grid; ";
  if (l.lds_size() > 65536) all += std::to_string(l.lds_size()) + " bytes of LDS (65536 are possible); ";
  if (!all.empty()) throw Error("launch of '" + k.name + "': " + all.substr(0, all.size() - 2));
}

struct Seeder {
  std::mt19937_64 rng;
  u32 next() { return static_cast<u32>(rng()); }
};

// SGPRs that are set: user SGPRs in their fixed order, then workgroup ids, then the scratch wave offset.
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

u32 registers(Wave& w, const Group& g, u32 first_thread) {
  const Launch& l = *g.launch;
  const KernelInfo& k = *l.kernel;
  Gfx gfx = l.program->gfx;
  user_sgprs(w, k, l);
  u32 n = k.rsrc2 >> 1 & 31;
  for (u32 i = 0; i < 3; ++i)
    if (k.rsrc2 >> (7 + i) & 1) w.s[n++] = g.id[i];
  if (k.rsrc2 >> 10 & 1) w.s[n++] = 0;
  if ((k.rsrc2 & 1) && !architected_scratch(gfx)) w.s[n++] = 0;
  for (u32 i = 0; i < w.n; ++i) {
    u32 t = first_thread + i;
    u32 x = t % l.block[0], y = t / l.block[0] % l.block[1], z = t / l.block[0] / l.block[1];
    if (packed_ids(gfx)) {
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
  w.mode = k.rsrc1 >> 12 & 0xff;
  w.dx10_clamp = k.rsrc1 >> 21 & 1;
  w.ieee = k.rsrc1 >> 23 & 1;
  if (w.mode != 0xf0 && w.mode != 0xc0)
    throw Error("kernel '" + k.name + "' asks for float mode " + std::to_string(w.mode) +
                "; only round-to-nearest-even with denormals kept is implemented");
  if (w.mode == 0xc0) throw Error("kernel '" + k.name + "' flushes f32 denormals; that is not implemented");
}
}  // namespace

u32 vgprs_allocated(const Program& p, const KernelInfo& k) {
  u32 granule = p.gfx == Gfx::gfx908 ? 4 : 8;
  return std::min<u32>(kVgprs, ((k.rsrc1 & 63) + 1) * granule);
}

void prepare_launch(Launch& l) {
  check(l);
  const KernelInfo& k = *l.kernel;
  if (l.kernarg.size() < k.kernarg) l.kernarg.resize(k.kernarg);
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
  if (l.check(Check::uninit)) prepare_shadow(*l.program);
  for (const Inst& in : l.program->code)
    l.alone |= in.op->cls == Class::vmem && std::strstr(in.op->name, "atomic");
  l.counts.assign(l.program->code.size(), 0);
  l.lanes_active.assign(l.program->code.size(), 0);
}

void start_group(Group& g, u64 seed) {
  Launch& l = *g.launch;
  const KernelInfo& k = *l.kernel;
  Seeder garbage{std::mt19937_64(seed)};
  u32 threads = l.block[0] * l.block[1] * l.block[2], waves = (threads + k.wave_size - 1) / k.wave_size;
  g.lds.resize(l.lds_size());
  for (size_t i = 0; i + 4 <= g.lds.size(); i += 4) put<u32>(g.lds, i, garbage.next());
  if (l.check(Check::uninit)) g.lds_undefined.assign(g.lds.size(), 1);
  if (l.check(Check::race)) g.lds_history.assign(g.lds.size(), {});
  g.lds_told.clear();
  if (!l.alone) g.touched.clear();
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
    w.origin = 0;
    w.scc = garbage.next() & 1;
    // Registers hold garbage, different for each seed, so that reading one never written shows.
    u32 fill = garbage.next();
    for (auto& reg : w.v)
      for (u32& x : reg) x = fill = fill * 1664525u + 1013904223u;
    for (u32& x : w.s) x = garbage.next();
    w.s[kNull] = 0;
    modes(w, k);
    u32 here = std::min(w.n, threads - i * w.n);
    w.launched = here == 64 ? ~0ull : (1ull << here) - 1;
    w.set_exec(w.launched);
    w.scratch_size = k.scratch;
    w.scratch.resize(static_cast<size_t>(k.scratch) * w.n);
    for (u8& b : w.scratch) b = static_cast<u8>(fill = fill * 1664525u + 1013904223u);
    if (l.check(Check::uninit)) w.scratch_undefined.assign(w.scratch.size(), 1);
    u32 sgprs = registers(w, g, i * w.n);
    if (l.check(Check::uninit)) start_shadow(w, sgprs);
    w.record = nullptr;
    if (l.options.record) w.record = &l.recorded[i];
    u64 entry = k.entry + (k.preload & 0x7f ? 256 : 0);
    auto it = l.program->at.find(entry);
    if (it == l.program->at.end())
      throw Error("kernel '" + k.name + "': its entry is not in the disassembly");
    w.next = it->second;
  }
  g.waves.resize(waves);
}
}  // namespace emu
