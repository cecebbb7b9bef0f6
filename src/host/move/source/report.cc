#include "host/move/source/report.h"

#include "base/clock.h"
#include "ferry.pb.h"

namespace ferry::host {

namespace {

// 0 when one of them has not come.
double between(StepEnds::Time from, StepEnds::Time to) {
  const StepEnds::Time never;
  return from == never || to == never ? 0 : milliseconds_between(from, to);
}

}  // namespace

v1::MoveReport report_of(const StoppedTree::Timing& timing, const StepEnds& ends,
                         const ImageTotals& image, std::uint64_t rdma_ns_there) {
  v1::MoveReport report;
  report.set_blackout_ms(between(timing.began, ends.resumed));
  report.set_stop_ms(between(timing.began, ends.stopped));
  report.set_dump_ms(between(ends.stopped, ends.dumped));
  report.set_transfer_ms(between(ends.dumped, ends.transferred));
  report.set_restore_ms(between(ends.transferred, ends.restored));
  report.set_commit_ms(between(ends.restored, ends.committed));
  report.set_resume_ms(between(ends.committed, ends.resumed));
  report.set_rdma_stop_ms(static_cast<double>(timing.rdma_ns) / 1e6);
  report.set_rdma_resume_ms(static_cast<double>(rdma_ns_there) / 1e6);
  report.set_rdma_share_ms(report.rdma_stop_ms() + report.rdma_resume_ms());
  report.set_unacked_psns(timing.unacked_psns);
  report.set_image_bytes(image.stream_bytes);
  report.set_qps(timing.qps);
  return report;
}

}  // namespace ferry::host
