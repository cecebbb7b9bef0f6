// PD State Registers: where the command queues are, and four pointers of each. Pointers count entries modulo twice the
// depth of a queue, so that a full queue is not an empty one. The host writes by MMIO:
//
//   0x0000  base of the submission queues (SQ), which lie one behind the other
//   0x0008  base of the completion queues (CQ), likewise
//   0x1000 + 8 * queue  sq_tail: what the host has submitted
//   0x2000 + 8 * queue  cq_head: what the host has taken
module pd_state_registers #(
  parameter QUEUES = 16,
  parameter DEPTH  = 1024,
  localparam QW = $clog2(QUEUES),
  localparam PW = $clog2(DEPTH) + 1
) (
  input  logic          clk,
  input  logic          reset,
  output logic          ready,  // after a reset, when all pointers are 0
  input  logic          mmio_valid,
  input  logic [15:0]   mmio_address,
  input  logic [63:0]   mmio_data,
  output logic [63:0]   sq_base,
  output logic [63:0]   cq_base,
  // The fetcher: looks at a queue, and has fetched up to a new sq_head.
  input  logic [QW-1:0] look_queue,
  output logic [PW-1:0] look_sq_head,
  output logic [PW-1:0] look_sq_tail,
  output logic [PW-1:0] look_cq_head,
  input  logic          fetched_valid,
  input  logic [QW-1:0] fetched_queue,
  input  logic [PW-1:0] fetched_head,
  // Who completes: takes one more place of a completion queue.
  input  logic [QW-1:0] complete_queue,
  output logic [PW-2:0] complete_place,
  input  logic          complete_valid
);
  logic [PW-1:0] sq_head[QUEUES-1:0];
  logic [PW-1:0] sq_tail[QUEUES-1:0];
  logic [PW-1:0] cq_head[QUEUES-1:0];
  logic [PW-1:0] cq_tail[QUEUES-1:0];
  logic [QW:0] cleared;
  logic [PW-1:0] complete_tail;

  assign ready = cleared[QW];
  assign look_sq_head = sq_head[look_queue];
  assign look_sq_tail = sq_tail[look_queue];
  assign look_cq_head = cq_head[look_queue];
  assign complete_place = complete_tail[PW-2:0];
  assign complete_tail = cq_tail[complete_queue];

  // Each memory has one place of writing, which clears it first.
  logic [QW-1:0] clear_queue, mmio_queue;
  assign clear_queue = cleared[QW-1:0];
  assign mmio_queue  = mmio_address[QW+2:3];

  always_ff @(posedge clk) begin
    if (reset) cleared <= '0;
    else if (!ready) cleared <= cleared + 1'b1;

    if (mmio_valid && mmio_address == 16'h0000) sq_base <= mmio_data;
    if (mmio_valid && mmio_address == 16'h0008) cq_base <= mmio_data;

    if (!ready || (mmio_valid && mmio_address[15:12] == 4'h1))
      sq_tail[ready ? mmio_queue : clear_queue] <= ready ? mmio_data[PW-1:0] : '0;
    if (!ready || (mmio_valid && mmio_address[15:12] == 4'h2))
      cq_head[ready ? mmio_queue : clear_queue] <= ready ? mmio_data[PW-1:0] : '0;
    if (!ready || fetched_valid) sq_head[ready ? fetched_queue : clear_queue] <= ready ? fetched_head : '0;
    if (!ready || complete_valid)
      cq_tail[ready ? complete_queue : clear_queue] <= ready ? complete_tail + 1'b1 : '0;
  end

`ifndef SYNTHESIS
  logic [PW-1:0] complete_head;
  assign complete_head = cq_head[complete_queue];
  localparam [PW-1:0] FULL = {1'b1, {PW-1{1'b0}}};
  a_host_waits: assert property (@(posedge clk) disable iff (reset) mmio_valid |-> ready);
  a_cq_has_room: assert property (@(posedge clk) disable iff (reset)
    ready && complete_valid |-> (complete_tail - complete_head) != FULL);
`endif
endmodule
