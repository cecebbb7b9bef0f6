// What holds of every stream: who offers something goes on offering the same until it is taken.
module pd_stream_check #(
  parameter WIDTH = 1
) (
  input logic             clk,
  input logic             reset,
  input logic             valid,
  input logic             ready,
  input logic [WIDTH-1:0] payload
);
`ifndef SYNTHESIS
  a_valid_stays: assert property (@(posedge clk) disable iff (reset) valid && !ready |=> valid);
  a_payload_stays: assert property (@(posedge clk) disable iff (reset) valid && !ready |=> $stable(payload));
`endif
endmodule
