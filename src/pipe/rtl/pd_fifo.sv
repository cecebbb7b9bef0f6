// A FIFO that never gets more than it holds: who pushes has counted before.
module pd_fifo #(
  parameter WIDTH = 8,
  parameter DEPTH = 32  // a power of two
) (
  input  logic             clk,
  input  logic             reset,
  input  logic             push,
  input  logic [WIDTH-1:0] push_data,
  output logic             valid,
  output logic [WIDTH-1:0] data,
  input  logic             pop
);
  localparam BITS = $clog2(DEPTH);

  logic [WIDTH-1:0] memory[DEPTH-1:0];
  logic [BITS:0] head, tail;

  assign valid = head != tail;
  assign data  = memory[head[BITS-1:0]];

  always_ff @(posedge clk) begin
    if (push) memory[tail[BITS-1:0]] <= push_data;
    if (reset) begin
      head <= '0;
      tail <= '0;
    end else begin
      if (push) tail <= tail + 1'b1;
      if (pop && valid) head <= head + 1'b1;
    end
  end

`ifndef SYNTHESIS
  localparam [BITS:0] FULL = {1'b1, {BITS{1'b0}}};
  a_room: assert property (@(posedge clk) disable iff (reset) push |-> (tail - head) != FULL);
  a_pop: assert property (@(posedge clk) disable iff (reset) pop |-> valid);
`endif
endmodule
