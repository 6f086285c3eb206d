// LoadReport -> the tables of `apportion check`.
#include <algorithm>
#include <array>

#include "config/load.hpp"

namespace apportion {
namespace {

constexpr std::size_t kColumns = 6;
using Row = std::array<std::string, kColumns>;

// Columns as wide as their widest cell, two spaces apart, nothing at the end of a line.
std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i)
      widths.at(i) = std::max(widths.at(i), row.at(i).size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      line += row.at(i) + std::string(widths.at(i) - row.at(i).size() + 2, ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string left_over(const LoadReport& report) {
  if (report.left == Bytes{}) return "";
  return report.left < report.chunk ? "less than a chunk" : "in neither pool nor overhead";
}

std::string terms(const LoadReport& report) {
  std::vector<Row> rows;
  std::string kind;
  if (report.device.display) kind += "a display runs on it";
  if (report.device.integrated) kind += (kind.empty() ? "" : ", ") + std::string{"its memory is the host's"};
  rows.push_back({"device", to_text(report.device.total), kind});
  if (report.device.in_use != Bytes{})
    rows.push_back({"in use", to_text(report.device.in_use), "by others, now"});
  if (report.pool_chunks > 0) {
    rows.push_back({"pool", to_text(report.pool),
                    std::to_string(report.pool_chunks) + " x " + to_text(report.chunk) +
                        ", pool = " + report.pool_rule});
    rows.push_back({"overhead", to_text(report.overhead), report.overhead_rule});
    rows.push_back({"helper context", to_text(report.device.helper_context), ""});
    rows.push_back({"left over", to_text(report.left), left_over(report)});
    rows.push_back({"reserve", to_text(report.reserve), report.reserve_rule});
  }
  return table(rows);
}

std::string jobs(const LoadReport& report) {
  std::vector<Row> rows;
  rows.push_back({"JOB", "GUARANTEE", "LIMIT", "TOLD", "TOLD IF RECLAIMABLE", "WRITTEN"});
  for (const JobQuota& job : report.jobs) {
    rows.push_back({job.name, to_text(job.guarantee),
                    to_text(job.limit) + (job.limit_clamped ? " (the pool)" : ""), to_text(job.told),
                    to_text(job.told_reclaimable), job.written});
  }
  const std::string rest = report.promised <= report.pool
                               ? to_text(report.pool - report.promised) + " of the pool is promised to nobody"
                               : to_text(report.promised - report.pool) + " more than the pool";
  rows.push_back({"sum", to_text(report.promised), "", "", "", rest});
  return table(rows);
}

}  // namespace

std::string to_text(const LoadReport& report) {
  std::string out = terms(report);
  if (!report.jobs.empty()) out += "\n" + jobs(report);
  if (!report.warnings.empty()) out += "\n";
  for (const std::string& warning : report.warnings)
    out += "warning: " + warning + "\n";
  return out;
}

}  // namespace apportion
