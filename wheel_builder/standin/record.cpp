#include "record.hpp"

#include <cstdio>
#include <numeric>
#include <vector>

namespace standin {

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

}  // namespace

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
         "], \"executed\": " + std::to_string(executed) + ", \"stopped\": " + quoted(stopped) +
         ", \"findings\": [" + findings + "]}";
}

}  // namespace standin
