// Branches, barriers, modes and pure pipeline control.
#include "code/decode.hpp"
#include "code/ops.hpp"
#include "run/launch.hpp"
#include "run/setup.hpp"

namespace emu {
namespace {
void branch_to(Wave& w, const Inst& in, bool taken) {
  if (taken) w.next = in.target;
}
void bind_branch(Program&, Inst& in, const std::string&) {
  in.offset = static_cast<i16>(in.words[0] & 0xffff);
  in.aux |= kHasSoff;
}
constexpr u32 kMinusOne = 193;  // the inline constant, as a source of a scalar instruction
// The launch has checked the kernel's instructions for the mode at its start only.
void set_mode(Wave& w, const Inst& in, u32 mode) {
  w.mode = mode;
  const u32 floats = mode & kFloatMode;
  w.flushes = floats == kSingleFlushed;
  if (floats != kDenormalsKept && floats != float_mode(*w.launch->kernel))
    fail(
        w, in,
        "float mode " + std::to_string(floats) +
            " is not implemented; only round-to-nearest-even with denormals kept, and the kernel's own, are");
  if (!w.saturates && mode & kOverflowMode)
    if (const Inst* other = not_saturated(*w.program, *w.launch->kernel))
      fail(w, in, "sets FP16_OVFL; '" + w.program->lines[other->text] + "' is not implemented for it");
  w.saturates = mode & kOverflowMode;
}
void write_register(Wave& w, const Inst& in, u32 value) {
  u32 spec = in.words[0] & 0xffff, id = spec & 63, offset = spec >> 6 & 31, width = (spec >> 11 & 31) + 1;
  if (id != 1) fail(w, in, "writing hardware register " + std::to_string(id) + " is not modelled");
  u32 mask = (width == 32 ? ~0u : (1u << width) - 1) << offset;
  set_mode(w, in, (w.mode & ~mask) | (value << offset & mask));
}

// Waves wait at a resource of the device until there are as many as the first lane says, plus one.
void gws_barrier(Wave& w, const Inst& in) {
  alignas(64) u32 tmp[kLanes];
  const u32* more = read_raw(w, in.src[0], tmp);
  const u64 wanted = u64{more[w.exec ? __builtin_ctzll(w.exec) : 0]} + 1;
  const size_t possible = w.group->waves.size();
  if (wanted > possible)
    fail(w, in,
         "waits for " + std::to_string(wanted) + " waves; workgroups run one after another here, and " +
             "this one has " + std::to_string(possible));
  const u32 resource = ((w.s[kM0] >> 16) + static_cast<u32>(in.offset)) % 64;
  std::vector<Wave*>& here = w.group->global_barriers[resource];
  here.push_back(&w);
  w.state = State::global_barrier;
  if (here.size() < wanted) return;
  Clock all = w.clock;
  for (Wave* other : here) all.hear(other->clock);
  for (Wave* other : here) {
    other->state = State::running;
    other->clock.hear(all);
    other->clock.advance();
  }
  here.clear();
}

// The halves of the workgroup's barrier, number -1. A wave may continue after its signal, until it waits.
void only_workgroup(Program&, Inst& in, const std::string& text) {
  const bool signal = in.op->name == std::string("s_barrier_signal");
  if (signal ? (in.words[0] & 0xff) != kMinusOne : (in.words[0] & 0xffff) != 0xffff)
    throw Error("only the workgroup's barrier is implemented, which is -1: " + text);
}
void barrier_signal(Wave& w, const Inst& in) {
  if (w.signalled) fail(w, in, "signals the barrier again without having waited at it");
  w.at_signal = w.clock;
  w.clock.advance();
  w.signalled = true;
}
void barrier_wait(Wave& w, const Inst& in) {
  if (!w.signalled) fail(w, in, "waits at a barrier that it has not signalled, for ever");
  w.state = State::barrier;
  w.barrier_pc = w.pc;
}

void set_index(Wave& w, u32 bits, u32 mask) { w.s[kM0] = (w.s[kM0] & ~mask) | (bits & mask); }
// An index is an address, so it must be defined.
void index_flow(Wave& s, const Inst& in) {
  flow::address<>(s, in);
  s.s[kM0] = 0;
}
void add_indexing(Ops& t) {
  auto add = [&](const char* name, Handler h, u32 flags = 0) -> OpInfo& {
    return t.add({name, h, Class::salu, 0, {Type::b32}, flags, nullptr});
  };
  add("s_set_gpr_idx_on", [](Wave& w, const Inst& in) {
    set_index(w, read_s32(w, in.src[0]), 0xff);
    set_index(w, static_cast<u32>(in.src[1].value) << 12, 0xf000);
    w.mode |= kGprIndexed;
  }).follows(index_flow);
  add("s_set_gpr_idx_idx", [](Wave& w, const Inst& in) {
    set_index(w, read_s32(w, in.src[0]), 0xff);
  }).follows(index_flow);
  add(
      "s_set_gpr_idx_off", [](Wave& w, const Inst&) { w.mode &= ~kGprIndexed; }, kNoOperands)
      .follows(flow::defined);
  add(
      "s_set_gpr_idx_mode", [](Wave& w, const Inst& in) { set_index(w, in.words[0] << 12, 0xf000); },
      kNoOperands)
      .follows(flow::defined);
}
}  // namespace

void add_control(Ops& t) {
  add_indexing(t);
#define FLOW(name, cls, flags, bindf, body) \
  t.add({#name,                             \
         [](Wave& w, const Inst& in) {      \
           (void)w;                         \
           (void)in;                        \
           body                             \
         },                                 \
         Class::cls,                        \
         0,                                 \
         {},                                \
         kNoOperands | (flags),             \
         bindf})                            \
      .follows(flow::defined)
  FLOW(s_branch, branch, 0, bind_branch, branch_to(w, in, true););
  FLOW(s_cbranch_scc0, branch, kReadsScc, bind_branch, branch_to(w, in, !w.scc);).follows(flow::branch_scc);
  FLOW(s_cbranch_scc1, branch, kReadsScc, bind_branch, branch_to(w, in, w.scc);).follows(flow::branch_scc);
  FLOW(s_cbranch_vccz, branch, kReadsVcc, bind_branch,
       branch_to(w, in, (w.s[kVcc] | (w.n == 64 ? w.s[kVcc + 1] : 0)) == 0);)
      .follows(flow::branch_vcc);
  FLOW(s_cbranch_vccnz, branch, kReadsVcc, bind_branch,
       branch_to(w, in, (w.s[kVcc] | (w.n == 64 ? w.s[kVcc + 1] : 0)) != 0);)
      .follows(flow::branch_vcc);
  FLOW(s_cbranch_execz, branch, 0, bind_branch, branch_to(w, in, w.exec == 0););
  FLOW(s_cbranch_execnz, branch, 0, bind_branch, branch_to(w, in, w.exec != 0););
  FLOW(s_barrier, barrier, 0, nullptr, w.state = State::barrier; w.barrier_pc = w.pc;);
  FLOW(s_barrier_signal, barrier, 0, only_workgroup, barrier_signal(w, in););
  FLOW(s_barrier_wait, barrier, 0, only_workgroup, barrier_wait(w, in););
  t.add({"ds_gws_barrier", gws_barrier, Class::barrier, 0, {Type::b32}, 0, nullptr}).follows(flow::address<>);
  FLOW(s_endpgm, end, 0, nullptr, w.state = State::done;);
  // Zeros after the end of a function are read as this. Executing them is an exception.
  FLOW(v_illegal, end, 0, nullptr, fail(w, in, "the kernel ran into an illegal instruction"););
  FLOW(s_trap, end, 0, nullptr, fail(w, in, "the kernel trapped (assertion or __builtin_trap)"););
  FLOW(
      s_setreg_b32, salu, 0, [](Program&, Inst&, const std::string&) {},
      // FLAT_SCRATCH (gfx10): the base of private memory, unused by the emulator's addresses.
      if ((in.words[0] & 63) != 20 && (in.words[0] & 63) != 21) fail(w, in, "s_setreg_b32 is not modelled"););
  FLOW(s_setreg_imm32_b32, salu, 0, nullptr, write_register(w, in, in.words[1]););
  FLOW(s_round_mode, salu, 0, nullptr, set_mode(w, in, (w.mode & ~0xfu) | (in.words[0] & 0xf)););
  FLOW(s_denorm_mode, salu, 0, nullptr, set_mode(w, in, (w.mode & ~0xf0u) | (in.words[0] & 0xf) << 4););
  for (const char* name : {"s_nop",
                           "s_waitcnt",
                           "s_waitcnt_vscnt",
                           "s_waitcnt_vmcnt",
                           "s_waitcnt_expcnt",
                           "s_waitcnt_lgkmcnt",
                           "s_waitcnt_depctr",
                           "s_wait_loadcnt",
                           "s_wait_storecnt",
                           "s_wait_samplecnt",
                           "s_wait_bvhcnt",
                           "s_wait_expcnt",
                           "s_wait_dscnt",
                           "s_wait_kmcnt",
                           "s_wait_loadcnt_dscnt",
                           "s_wait_storecnt_dscnt",
                           "s_wait_idle",
                           "s_wait_alu",
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
                           "global_inv",
                           "global_wb",
                           "global_wbinv",
                           "buffer_wbl2",
                           "buffer_inv",
                           "buffer_wbinvl1",
                           "buffer_wbinvl1_vol",
                           "ds_nop"})
    t.add({name, [](Wave&, const Inst&) {}, Class::wait, 0, {}, kNoOperands, nullptr});
}
}  // namespace emu
