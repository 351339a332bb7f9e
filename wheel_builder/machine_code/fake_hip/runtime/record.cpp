#include "record.hpp"

#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

namespace fake_hip {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string hexadecimal(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string triple(const std::uint32_t (&numbers)[3]) {
  return std::to_string(numbers[0]) + ", " + std::to_string(numbers[1]) + ", " + std::to_string(numbers[2]);
}

std::string words(const emu::Launch& launch, const emu::Finding& finding) {
  const emu::Inst& instruction = launch.program->code[finding.inst];
  return finding.kind + ": " + finding.detail + "; address " + hexadecimal(finding.address) + "; kernel " +
         launch.kernel->name + " at " + launch.program->where(instruction.address) + ", '" +
         launch.program->lines[instruction.text] + "', workgroup (" + triple(finding.group) + ") wave " +
         std::to_string(finding.wave) + " lane " + std::to_string(finding.lane) + " (" +
         std::to_string(finding.count) + " times)";
}

std::vector<std::string> findings_of(const emu::Launch& launch) {
  std::vector<std::string> all;
  for (const auto& entry : launch.report.all()) all.push_back(words(launch, entry.second));
  return all;
}

// The compiler moves rare blocks after s_endpgm. They end with a branch back.
bool never_goes_on(const emu::OpInfo& op) {
  return op.cls == emu::Class::end || op.name == std::string_view("s_branch") ||
         op.name == std::string_view("s_setpc_b64");
}

// The instructions from the kernel's entry to the last one without a successor. The rest only fills a cache
// line.
std::vector<std::uint32_t> instructions_of(const emu::Program& program, const emu::KernelInfo& kernel) {
  std::uint64_t end = kernel.entry;
  for (const emu::Symbol& symbol : program.symbols) {
    if (symbol.name == kernel.name) end = symbol.address + symbol.size;
  }
  std::vector<std::uint32_t> inside;
  for (std::uint32_t i = 0; i < program.code.size(); ++i) {
    const emu::Inst& instruction = program.code[i];
    if (instruction.address >= kernel.entry && instruction.address < end) inside.push_back(i);
  }
  while (!inside.empty() && !never_goes_on(*program.code[inside.back()].op)) inside.pop_back();
  return inside;
}

std::string ran(const emu::Launch& launch) {
  const std::vector<std::uint32_t> inside = instructions_of(*launch.program, *launch.kernel);
  std::string digits((inside.size() + 3) / 4, '0');
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const int bit = launch.counts[inside[i]] != 0 ? 1 << i % 4 : 0;
    char& digit = digits[i / 4];
    digit = "0123456789abcdef"[(digit <= '9' ? digit - '0' : digit - 'a' + 10) | bit];
  }
  return digits;
}

// A digit for each instruction: emu::OutcomeBits.
std::string outcomes(const emu::Launch& launch) {
  std::string digits;
  if (!launch.options.outcomes) return digits;
  for (const std::uint32_t i : instructions_of(*launch.program, *launch.kernel)) {
    digits += "0123456789abcdef"[launch.outcomes[i]];
  }
  return digits;
}

}  // namespace

std::string listing_of(const emu::Program& program, const emu::KernelInfo& kernel) {
  std::string rows;
  for (const std::uint32_t i : instructions_of(program, kernel)) {
    const emu::Inst& instruction = program.code[i];
    rows += (rows.empty() ? "" : ", ") + std::string("{\"offset\": ") +
            std::to_string(instruction.address - kernel.entry) +
            ", \"text\": " + quoted(program.lines[instruction.text]) + "}";
  }
  return "[" + rows + "]";
}

std::string problems_of(const emu::Launch& launch, const std::string& stopped) {
  std::string text = stopped;
  for (const std::string& finding : findings_of(launch)) text += (text.empty() ? "" : "\n") + finding;
  return text;
}

std::string record_of(const emu::Launch& launch, const std::string& arch, const std::string& stopped) {
  std::string findings;
  for (const std::string& finding : findings_of(launch)) {
    findings += (findings.empty() ? "" : ", ") + quoted(finding);
  }
  const auto executed = std::accumulate(launch.counts.begin(), launch.counts.end(), emu::u64{0});
  return "{\"kernel\": " + quoted(launch.kernel->name) + ", \"arch\": " + quoted(arch) + ", \"grid\": [" +
         triple(launch.grid) + "], \"block\": [" + triple(launch.block) +
         "], \"executed\": " + std::to_string(executed) + ", \"ran\": " + quoted(ran(launch)) +
         ", \"outcomes\": " + quoted(outcomes(launch)) + ", \"stopped\": " + quoted(stopped) +
         ", \"findings\": [" + findings + "]}";
}

}  // namespace fake_hip
