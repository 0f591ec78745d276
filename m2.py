import sys; src=open('/tmp/fuzz14b/n/m.py').read().split("g=torch.ones")[0]; exec(src)
g=torch.ones(8,8)
f={'F':F,'G':G}[sys.argv[1]]; k=int(sys.argv[2]); n=int(sys.argv[3])
for _ in range(n):
    y=f.apply(k,x); y.backward(g); x.grad=None
