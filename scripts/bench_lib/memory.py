"""Memory that the RNIC needs for an idle RC QP beside its queues (bench/qp_memory.cc)."""

import json

from .contest import FERRY, output_of

QPS = 4096


def measure(contest):
    contest.progress.step(f"memory of {QPS:,} queue pairs")
    result = json.loads(output_of(contest.server_host, [*FERRY, "qp_memory", "--qps", QPS], timeout=300))
    contest.table("Memory of an idle, connected RC QP, bytes", ["", "bytes"],
                  [["beside its queues", f"{result['bytes_per_qp']:,.0f}"],
                   ["for each entry of the send queue", f"{result['bytes_per_send_entry']:,.0f}"],
                   ["for each entry of the receive queue", f"{result['bytes_per_receive_entry']:,.0f}"]],
                  f"Of {QPS:,} QPs; heap of the process, from queues of different depths.")
    return result
