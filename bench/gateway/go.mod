module kvasir/bench/gateway

go 1.26.0
